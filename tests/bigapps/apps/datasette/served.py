from datasette.app import Datasette

app = Datasette(["shop.db"], settings={"max_csv_mb": 0}).app()
