package files

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func environment(ctx *durable.Context, in int) (string, error) {
	if v, ok := os.LookupEnv("REGION"); ok { // want `os.LookupEnv depends on the machine and the process, which may differ on replay; pass the value in as input`
		return v, nil
	}
	host, err := os.Hostname()          // want `os.Hostname depends`
	if err != nil || len(os.Args) > 1 { // want `os.Args depends`
		return "", err
	}
	if runtime.NumCPU() > 1 { // want `runtime.NumCPU depends`
		os.Exit(1) // want `os.Exit ends the worker`
	}
	return host + os.Getenv("X"), nil // want `os.Getenv depends`
}

func disk(ctx *durable.Context, name string) (string, error) {
	b, err := os.ReadFile(name) // want `os.ReadFile does I/O that the history does not record and each replay repeats; do it in an activity`
	if err != nil {
		return "", err
	}
	f, err := os.Open(name) // want `os.Open does I/O`
	if err != nil {
		return "", err
	}
	defer f.Close()                   // want `os.File.Close does I/O`
	io.ReadAll(f)                     // want `io.ReadAll on f does I/O`
	_ = bufio.NewScanner(f)           // want `bufio.NewScanner on f does I/O`
	io.WriteString(os.Stdout, "done") // want `^os.Stdout does I/O`
	filepath.Glob("*")                // want `filepath.Glob does I/O`
	return string(b), nil
}

func network(ctx *durable.Context, u string) (int, error) {
	resp, err := http.Get(u) // want `http.Get uses the network, which the history does not record and each replay repeats; do it in an activity`
	if err != nil {
		return 0, err
	}
	http.DefaultClient.CloseIdleConnections() // want `http.DefaultClient uses the network` `http.Client.CloseIdleConnections uses`
	conn, err := net.Dial("tcp", u)           // want `net.Dial uses the network`
	if err == nil {
		conn.Write(nil) // want `net.Conn.Write uses`
	}
	net.LookupHost(u) // want `net.LookupHost uses`
	return resp.StatusCode, nil
}

func others(ctx *durable.Context, db *sql.DB) (string, error) {
	row := db.QueryRowContext(context.Background(), "SELECT 1") // want `sql.DB.QueryRowContext uses a database, which the history does not record`
	var name string
	err := row.Scan(&name)    // want `sql.Row.Scan uses a database`
	cmd := exec.Command("ls") // want `exec.Command runs a process`
	cmd.Run()                 // want `exec.Cmd.Run runs a process`
	return name, err
}

func threads(ctx *durable.Context, in int) (int, error) {
	runtime.LockOSThread() // want `runtime.LockOSThread ties an orchestrator, which is a coroutine, to a thread`
	defer runtime.UnlockOSThread()
	if in == 0 {
		runtime.Goexit() // want `runtime.Goexit ends the orchestrator without a result; return an error`
	}
	return in, nil
}

func right(ctx *durable.Context, in string) (string, error) {
	u, err := url.Parse(in)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, sql.ErrNoRows), errors.Is(err, io.EOF), os.IsNotExist(err):
		return "", err
	}
	host, port, err := net.SplitHostPort(u.Host)
	if net.ParseIP(host).IsLoopback() {
		return http.StatusText(http.StatusOK), nil
	}
	h := http.Header{}
	h.Set("a", "b")
	b, err := io.ReadAll(strings.NewReader(in))
	name := sql.NullString{String: host, Valid: true}
	return filepath.Join(name.String, port, h.Get("a"), string(b), os.DevNull), err
}
