import gradio as gr
from fastapi import FastAPI

app = FastAPI()


@app.get("/plain")
async def plain() -> dict[str, str]:
    return {"answer": "plain"}


def greet(name: str) -> str:
    return f"hello {name}"


with gr.Blocks(title="test") as blocks:
    name = gr.Textbox(label="name")
    greeting = gr.Textbox(label="greeting")
    gr.Button("Greet").click(greet, name, greeting, api_name="greet")

app = gr.mount_gradio_app(app, blocks, path="/")
