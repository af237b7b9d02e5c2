package azuritetest

import (
	"io"
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
)

// call returns the call that a request performs.
func (c *Counter) call(req *http.Request) Call {
	service, pathStyle := c.services[req.URL.Host]
	if !pathStyle { // such as https://account.queue.core.windows.net
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

// callOf returns the call of a request to service. path is the request's path without the account.
func callOf(service, path string, req *http.Request) Call {
	target, _, _ := strings.Cut(path, "/")
	name := storageop.Of(service, req, path)
	if service == storageop.Table {
		target = tableOf(req, target)
	}
	return Call{service, name, target}
}

// tableOf returns the table of a request.
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

// batchTable returns the table of a transaction, which is named in its first inner request. It
// needs a body that can be rewound, as the SDKs send for their retries; otherwise it returns "".
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
