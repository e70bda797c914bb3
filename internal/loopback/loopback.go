// Package loopback finds addresses for servers of tests.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Address returns a host and a port of this machine where nothing listens. The host is not 127.0.0.1, where connections
// of other programs take ports all the time.
func Address() (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
