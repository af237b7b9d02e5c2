package processtest

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

func TestReservePort_CanBeUsedByProgramsThatAskForIt(t *testing.T) {
	t.Parallel()
	var address string
	t.Run("reserved", func(t *testing.T) {
		address = fmt.Sprintf("127.0.0.1:%d", ReservePort(t))
		for range 2 {
			if conn, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
				if err == nil {
					conn.Close()
				}
				t.Errorf("dial before a program listens: error %v, want connection refused", err)
			}
			l, err := net.Listen("tcp", address) //nolint:forbidigo // the port stays reserved
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	})
}

func TestReservePort_ReturnsADifferentPortEachTime(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	for range 100 {
		port := ReservePort(t)
		if given[port] {
			t.Errorf("port %d was reserved twice", port)
		}
		given[port] = true
	}
}
