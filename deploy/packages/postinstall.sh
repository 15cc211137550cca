#!/bin/sh
# Makes the user of the units. Nothing is enabled and nothing started: the settings have no addresses yet. An installation into another
# root (DPKG_ROOT, or a chroot without systemd) makes the user there, or leaves that to its first start.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers ${root:+--root="$root"} agentstream.conf
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
