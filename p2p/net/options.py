"""The options of every socket: bounds, patience, and keys."""

from __future__ import annotations

from typing import Final

import zmq

from p2p.config import NetConfig
from p2p.net.keys import client_pair, server_pair
from p2p.net.wire import HEADER_BYTES, PAYLOAD_BYTES
from p2p.net.zap import DOMAIN

CURVE_BYTES = 64
"""Room for what CURVE adds to each frame (33 bytes)."""
LIMITS: Final = {"control": (256, HEADER_BYTES + CURVE_BYTES), "data": (128, PAYLOAD_BYTES + CURVE_BYTES)}
"""Messages queued each way for one peer, and the longest frame. The agent's credit, below 64 messages, bounds the bytes."""
BACKLOG = 512


def router_options(name: str, config: NetConfig, secret: bytes | None) -> dict[int, int | bytes]:
    """For the binding end of `name`, one of `LIMITS`. Mandatory: what can't be delivered is an error, not dropped."""
    keys: dict[int, int | bytes] = {}
    if secret:
        keys = {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: server_pair(secret).secret}
        keys |= {zmq.ZAP_DOMAIN: DOMAIN, zmq.ZAP_ENFORCE_DOMAIN: 1}  # libzmq asks the doorkeeper, and refuses without one
    return _common(config, *LIMITS[name]) | {zmq.ROUTER_MANDATORY: 1, zmq.BACKLOG: BACKLOG} | keys


def dealer_options(config: NetConfig, secret: bytes | None) -> dict[int, int | bytes]:
    """For a dialling end, whichever router it leads to."""
    keys: dict[int, int | bytes] = {}
    if secret:
        client = client_pair(secret)
        keys = {zmq.CURVE_PUBLICKEY: client.public, zmq.CURVE_SECRETKEY: client.secret}
        keys |= {zmq.CURVE_SERVERKEY: server_pair(secret).public}
    return _common(config, *LIMITS["data"]) | keys


def _common(config: NetConfig, queue: int, longest: int) -> dict[int, int | bytes]:
    """What all sockets have. IPv6 takes IPv4 addresses too."""
    return {
        zmq.LINGER: 0,
        zmq.IPV6: 1,
        zmq.SNDHWM: queue,
        zmq.RCVHWM: queue,
        zmq.MAXMSGSIZE: longest,
        zmq.TCP_KEEPALIVE: 1,
        zmq.TCP_KEEPALIVE_IDLE: 30,
        zmq.TCP_KEEPALIVE_INTVL: 10,
        zmq.TCP_KEEPALIVE_CNT: 3,
        zmq.HEARTBEAT_IVL: _ms(config.heartbeat),
        zmq.HEARTBEAT_TIMEOUT: _ms(config.heartbeat_timeout),
        zmq.HEARTBEAT_TTL: _ms(config.heartbeat_timeout + config.heartbeat),
        zmq.RECONNECT_IVL: _ms(config.reconnect),
        zmq.RECONNECT_IVL_MAX: _ms(config.reconnect_max),
        zmq.CONNECT_TIMEOUT: _ms(config.connect_timeout),
        zmq.HANDSHAKE_IVL: _ms(config.connect_timeout),
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
