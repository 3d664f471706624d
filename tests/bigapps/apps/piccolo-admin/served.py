from piccolo_admin.endpoints import create_admin
from tables import Item

app = create_admin([Item])
