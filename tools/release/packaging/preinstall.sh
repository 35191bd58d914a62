#!/bin/sh
set -e
getent group manifold >/dev/null || groupadd --system manifold
getent passwd manifold >/dev/null ||
	useradd --system --gid manifold --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin manifold
