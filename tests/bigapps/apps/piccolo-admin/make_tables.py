"""Makes the tables, a user, and 40 rows."""

from piccolo.apps.user.tables import BaseUser
from piccolo.table import create_db_tables_sync
from piccolo_api.session_auth.tables import SessionsBase
from tables import Item

create_db_tables_sync(BaseUser, SessionsBase, Item)
BaseUser.create_user_sync(username="ada", password="of a test", admin=True, active=True, superuser=True)
Item.insert(*(Item(name=f"item {number}", price=number) for number in range(40))).run_sync()
