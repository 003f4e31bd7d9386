"""What commands share to talk to brokers: clients, options, requests that no client library has, errors."""
