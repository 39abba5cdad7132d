"""Farside in containers: what docker-compose.yml and deploy/Dockerfile need beside themselves."""
