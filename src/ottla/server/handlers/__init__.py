"""One module per API: authorize, translate, call, answer. `ottla.server.routing` names them all."""
