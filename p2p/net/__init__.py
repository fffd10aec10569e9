"""The network: messages, their wire format, keys, and the transports."""
