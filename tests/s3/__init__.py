"""Everything on S3: a real server on loopback, and a proxy that makes its way bad."""
