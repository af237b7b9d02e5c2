package azuritetest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"syscall"
	"testing"
)

func TestProxy_KeepsItsPortWhileItIsStopped(t *testing.T) {
	service := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(service.Close)
	p := NewProxy()
	t.Cleanup(p.Stop)
	through, err := p.Service("echo", service.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	address, err := url.Parse(through)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	// Another process that asks for this port must not get it.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("binding the port: %v, want %v", err, syscall.EADDRINUSE)
	}
	if err := p.Restart(); err != nil {
		t.Error(err)
	}
}
