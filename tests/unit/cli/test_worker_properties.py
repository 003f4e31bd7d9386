"""The settings of `ottla connect serve`: of the worker, of its clients, and of its REST API."""

from ottla.cli.connect.serve import worker_properties
from ottla.connect.rest.certificates import https_settings


def test_the_rest_api_has_the_tls_of_the_clients_unless_it_has_its_own() -> None:
    shared = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/worker.pem",
        "ssl.key.password": "geheim",
        "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="p";',
    }
    given = worker_properties(shared)
    assert (given["sasl.username"], given["sasl.password"], given["ssl.key.password"]) == ("u", "p", "geheim")
    tls = https_settings(given)
    assert (tls.key_store.type, tls.key_store.location, tls.key_password) == ("PEM", "/worker.pem", "geheim")
    own = https_settings(worker_properties({**shared, "listeners.https.ssl.keystore.location": "/own.p12"}))
    assert (own.key_store.location, own.key_password) == ("/own.p12", None), "all or none, as in Kafka"
