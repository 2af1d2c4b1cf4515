#!/bin/sh
# Installs exactly the packages beside this script, without a network and without a question,
# and leaves nothing of itself. `packages` holds one `NAME VERSION` a line.
set -eu
here=/.envlock-debs
umask 022
SOURCE_DATE_EPOCH=$(cat "$here/epoch")
export SOURCE_DATE_EPOCH DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8

# No service may start while the image is made; a base that says so itself keeps its own word.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then
    made=$policy
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi

# A pre-dependency may come later in the alphabet: what could not be unpacked is tried again.
tries=0
until dpkg --unpack "$here"/*.deb; do
    tries=$((tries + 1))
    [ "$tries" -lt 4 ] || exit 1
    dpkg --configure --pending || true
done
dpkg --configure --pending

if [ -n "$made" ]; then
    rm -f "$made"
fi

while read -r name version; do
    # shellcheck disable=SC2016 # the format is dpkg-query's
    found=$(dpkg-query --show --showformat='${db:Status-Status} ${Version}' "$name")
    if [ "$found" != "installed $version" ]; then
        echo "package $name is \"$found\", expected \"installed $version\"" >&2
        exit 1
    fi
done < "$here/packages"
rm -rf "$here"
