"""The Flower app: the names of its two halves. `autofl deploy run` names it to Flower.

Settings travel as TOML text in the app's run configuration. A device's own facts (its number, its
data file) are in its node configuration and stay with it.
"""

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from autofl.deploy.client import channel, evaluate, introduce, session, train
from autofl.deploy.server import serve

server_app = ServerApp()  # Flower looks these two names up without importing the module
client_app = ClientApp()
server_app.main()(serve)
client_app.query("introduce")(introduce)
client_app.query("channel")(channel)
client_app.query("session")(session)
client_app.train()(train)
client_app.evaluate()(evaluate)
