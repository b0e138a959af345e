"""Airflow's own application with the plugin in it, asked as the users in USERS; prints what it answered."""

import json
import os
import sys

from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient


def main() -> int:
    users = json.loads(os.environ["USERS"])
    client = TestClient(create_app("core"))
    plugins = client.get("/api/v2/plugins", headers=users["admin"]).json()["plugins"]
    (mine,) = (plugin for plugin in plugins if plugin["name"] == "gddl")
    path, body = f"/api/v2/dags/{os.environ['PACK']}/dagRuns", json.dumps({"logical_date": None})
    answer = {
        "index": client.get("/gddl/").status_code,
        "nobody": client.get("/gddl/api/v1/tables").status_code,
        "triggered": client.post(path, headers=users["viewer"], content=body).status_code,
        "views": mine.get("external_views"),
        "tables": [row["table"] for row in client.get("/gddl/api/v1/tables", headers=users["viewer"]).json()["rows"]],
    }
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
