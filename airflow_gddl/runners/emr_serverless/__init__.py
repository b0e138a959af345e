"""EMR Serverless: its settings need no package, `platform` needs boto3 (extra `emr-serverless`)."""
