// Command peer-controller-runtime is a webhook as people write it in Go: controller-runtime, a typed Pod, one check of
// labels, TLS. The benchmark of Tollgate measures it in the same runs.
//
// It takes the command line and the configuration file of `tollgate serve`, as far as the benchmark needs them, and
// logs the line that the benchmark waits for.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	host = "127.0.0.1"
	// startLimit is the longest time until the server accepts connections.
	startLimit = 10 * time.Second
)

func main() {
	if err := run(signals.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "peer-controller-runtime: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "serve" {
		return errors.New("expected `serve --tls FOLDER --config FILE`")
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	config := flags.String("config", "", "configuration file, as for `tollgate serve`, written as JSON")
	certificates := flags.String("tls", "", "folder with ca.crt, tls.crt and tls.key")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	log.SetLogger(zap.New())
	policy, err := ReadRequiredLabels(*config)
	if err != nil {
		return err
	}
	return serve(ctx, policy, *certificates)
}

func serve(ctx context.Context, policy *RequiredLabels, certificates string) error {
	hook, err := newWebhook(policy)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return fmt.Errorf("cannot find a free port: %w", err)
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: certificates})
	server.Register("/validate", hook)
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	address := net.JoinHostPort(host, fmt.Sprint(port))
	if err := announce(address, ended); err != nil {
		return err
	}
	return <-ended
}

// newWebhook returns the webhook for typed Pods.
func newWebhook(policy *RequiredLabels) (http.Handler, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register the types: %w", err)
	}
	return admission.WithValidator(scheme, policy), nil
}

// freePort returns a port that nothing listens on. controller-runtime takes port 0 for its default port.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// announce waits until the server accepts connections, and logs its address as `tollgate serve` does.
func announce(address string, ended <-chan error) error {
	// Only whether the server answers counts here. The load generator verifies the certificate.
	config := &tls.Config{InsecureSkipVerify: true}
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", err)
		default:
		}
		connection, err := tls.Dial("tcp", address, config)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		connection.Close()
		line := map[string]string{"message": "listening", "address": address, "admin": address}
		return json.NewEncoder(os.Stderr).Encode(line)
	}
	return fmt.Errorf("%s accepts no connections after %s", address, startLimit)
}
