import hashlib

from fastapi import FastAPI, UploadFile
from nicegui import ui

app = FastAPI()


@app.get("/plain")
async def plain() -> dict[str, str]:
    return {"answer": "plain"}


@app.post("/upload")
async def upload(file: UploadFile) -> dict[str, str]:
    return {"sha256": hashlib.sha256(await file.read()).hexdigest()}


@ui.page("/")
def index() -> None:
    counted = ui.label("counted 0")
    count = iter(range(1, 1_000_000))
    ui.button("count", on_click=lambda: counted.set_text(f"counted {next(count)}"))


ui.run_with(app, storage_secret="of a test")
