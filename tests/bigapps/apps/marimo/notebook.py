import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    return (mo,)


@app.cell
def _(mo):
    mo.md(f"the sum is {sum(range(100))}")
    return


if __name__ == "__main__":
    app.run()
