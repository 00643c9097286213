// A registry in memory that lists referrers, which the CNCF's registry does not. `cargo xtask oracles` records signatures
// of cosign in both. It prints its port.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	quiet := log.New(discard{}, "", 0)
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler:           registry.New(registry.Logger(quiet), registry.WithReferrersSupport(true)),
	}
	log.Fatal(server.Serve(listener))
}

type discard struct{}

func (discard) Write(bytes []byte) (int, error) { return len(bytes), nil }
