#!/bin/sh
# The service is neither started nor restarted: it needs its database, and a new release may need `manifold migrate up`.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
