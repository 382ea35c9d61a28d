#!/bin/bash
# The first process of a guest. Its root is the host's file system, read-only; what it must write is in memory, but for
# the test's folder, which it shares with the host. GUEST_* come from the kernel's command line (tests/lab/machines/nfs.py).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs nfs /var/lib/nfs
mount -t hostfs none "$GUEST_FOLDER" -o "$GUEST_FOLDER"
mkdir -p /run/tmp /run/lock /run/rpcbind /run/sshd /run/modules/lib /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts devpts /dev/pts
mkdir -p /var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs}
touch /var/lib/nfs/{etab,rmtab,xtab,state}
chown -R --reference=/var/lib/nfs /var/lib/nfs
# NFS 4 knows a client by its host name: with one name for all, each would throw out what the others have open.
hostname "guest-${GUEST_ADDRESS##*.}"
ip link set lo up
ip link set vec0 up
ip addr add "$GUEST_ADDRESS/24" dev vec0
ln -s /usr/lib/uml/modules /run/modules/lib/modules
load() { modprobe -d /run/modules "$@" || echo "no module $*"; }

rpcbind -w || rpcbind
rpc.statd --no-notify
if [ "$GUEST_ROLE" = server ]; then
  load nfsd
  mkdir /run/export
  mount -t tmpfs -o size=1G,mode=755 export /run/export
  mount -t nfsd nfsd /proc/fs/nfsd
  # A client that was killed must not be waited for: its locks and opens are gone after some seconds.
  echo 10 > /proc/fs/nfsd/nfsv4leasetime
  echo 10 > /proc/fs/nfsd/nfsv4gracetime
  exportfs -o rw,no_root_squash,no_subtree_check,fsid=0,insecure,async '*:/run/export'
  rpc.mountd
  rpc.nfsd -V 3 -V 4 -V 4.1 -V 4.2 8
  /usr/sbin/sshd -f "$GUEST_FOLDER/sshd.conf" -E /run/sshd.log || cat /run/sshd.log
else
  load -a nfsv3 nfsv4
fi
echo "guest $GUEST_ADDRESS ($GUEST_ROLE) is up"
exec "$GUEST_PYTHON" "$GUEST_AGENT"
