from piccolo.columns import Integer, Varchar
from piccolo.table import Table


class Item(Table):
    name = Varchar()
    price = Integer()
