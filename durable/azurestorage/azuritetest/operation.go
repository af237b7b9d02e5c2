package azuritetest

import (
	"io"
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
)

// call reads service, operation and target off a request.
func (c *Counter) call(req *http.Request) Call {
	service, pathStyle := c.services[req.URL.Host]
	if !pathStyle { // https://account.queue.core.windows.net
		if labels := strings.Split(req.URL.Hostname(), "."); len(labels) > 1 {
			service = labels[1]
		}
	}
	path := strings.TrimPrefix(req.URL.Path, "/")
	if pathStyle {
		_, path, _ = strings.Cut(path, "/") // the account
	}
	return callOf(service, path, req)
}

// callOf reads operation and target off a request. The path is its own without the
// account.
func callOf(service, path string, req *http.Request) Call {
	target, _, _ := strings.Cut(path, "/")
	name := storageop.Of(service, req, path)
	if service == storageop.Table {
		target = tableOf(req, target)
	}
	return Call{service, name, target}
}

// tableOf returns the table that a request is about.
func tableOf(req *http.Request, path string) string {
	table, key, _ := strings.Cut(path, "(")
	switch table {
	case "$batch":
		return batchTable(req)
	case "Tables":
		return strings.Trim(key, "')")
	}
	return table
}

// batchTable finds the one table of a transaction in its first inner request.
// The SDKs' bodies can be rewound, for their retries; another is left alone.
func batchTable(req *http.Request) string {
	body, ok := req.Body.(io.ReadSeeker)
	if !ok {
		return ""
	}
	head := make([]byte, 2048)
	n, _ := io.ReadFull(body, head)
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return ""
	}
	for line := range strings.Lines(string(head[:n])) {
		if _, url, found := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), " HTTP/1.1"), " http"); found {
			table, _, _ := strings.Cut(url[strings.LastIndex(url, "/")+1:], "(")
			return table
		}
	}
	return ""
}
