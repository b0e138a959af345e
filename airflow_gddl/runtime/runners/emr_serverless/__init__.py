"""Jobs as job runs of EMR Serverless applications, one application for each tier."""
