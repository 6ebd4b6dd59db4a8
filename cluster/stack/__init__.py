"""The long-lived stack on one machine, loopback only: Prefect server and worker, MLflow server, Ray head (`make up`, `make down`)."""
