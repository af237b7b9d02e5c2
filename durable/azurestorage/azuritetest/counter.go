package azuritetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// A Call is a storage operation that a request performs.
type Call struct {
	Service string // "blob", "queue" or "table"
	// Name is the REST operation in Microsoft's reference without spaces: PutMessage, GetMessages,
	// InsertEntity, EntityGroupTransaction and so on.
	Name string
	// Target is the name of the queue, table or container.
	Target string
}

// String returns the call in the form "queue PutMessage hub-control-00".
func (c Call) String() string { return c.Service + " " + c.Name + " " + c.Target }

// A Counter is a transport that counts calls and lets a test intercept them. Create it with
// [NewCounter].
type Counter struct {
	// Intercept, if set, is called for every request instead of sending it. next sends the request.
	// Intercept can thus answer a request, drop the response of a sent request, or delay both. Set
	// it before the first request. It must be safe for concurrent use.
	Intercept func(call Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error)

	// CountEmptyPolls makes the Counter count calls of GetMessages that return no message.
	CountEmptyPolls bool

	next     policy.Transporter
	services map[string]string // endpoint host → service

	mu     sync.Mutex
	counts map[Call]int
}

// NewCounter returns a Counter that sends requests with next, or with an HTTP client if next is
// nil. It derives the services from the endpoints in the connection string.
func NewCounter(connection string, next policy.Transporter) *Counter {
	if next == nil {
		next = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 2 * time.Second}}
	}
	c := &Counter{next: next, services: map[string]string{}, counts: map[Call]int{}}
	for part := range strings.SplitSeq(connection, ";") {
		key, value, _ := strings.Cut(part, "=")
		service, found := strings.CutSuffix(key, "Endpoint")
		if u, err := url.Parse(value); err == nil && found {
			c.services[u.Host] = strings.ToLower(service)
		}
	}
	return c
}

var _ policy.Transporter = (*Counter)(nil)

// Do sends req and counts it, unless it is an empty poll.
func (c *Counter) Do(req *http.Request) (*http.Response, error) {
	call := c.call(req)
	next := func() (*http.Response, error) { return c.next.Do(req) }
	send := next
	if c.Intercept != nil {
		send = func() (*http.Response, error) { return c.Intercept(call, req, next) }
	}
	resp, err := send()
	if call.Name == "GetMessages" && err == nil && !c.CountEmptyPolls {
		empty, err := isEmptyPoll(resp)
		if err != nil || empty {
			return resp, err
		}
	}
	c.mu.Lock()
	c.counts[call]++
	c.mu.Unlock()
	return resp, err
}

// Reset sets all counts to 0.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

// Counts returns the number of calls since the last Reset, by call.
func (c *Counter) Counts() map[Call]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[Call]int, len(c.counts))
	for call, n := range c.counts {
		counts[call] = n
	}
	return counts
}

// Total returns the number of calls for which match returns true. A nil match matches all calls.
func (c *Counter) Total(match func(Call) bool) int {
	total := 0
	for call, n := range c.Counts() {
		if match == nil || match(call) {
			total += n
		}
	}
	return total
}

// String returns a table of the counts with one call per line.
func (c *Counter) String() string {
	var lines []string
	for call, n := range c.Counts() {
		lines = append(lines, fmt.Sprintf("%-60s %d\n", call, n))
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

func isEmptyPoll(resp *http.Response) (bool, error) {
	if resp.StatusCode != http.StatusOK {
		return false, nil
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return false, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return !bytes.Contains(body, []byte("<QueueMessage>")), nil
}

// ErrorResponse returns an error response of the storage to req, for use in Intercept.
func ErrorResponse(req *http.Request, status int, code string) *http.Response {
	body := fmt.Sprintf(`{"odata.error":{"code":%q,"message":{"value":"refused by the test"}}}`, code)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"X-Ms-Error-Code": {code}, "Content-Type": {"application/json"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

// WhileAlive returns the transport of a process. It fails all requests once alive is false.
func WhileAlive(connection string, alive *atomic.Bool) *Counter {
	c := NewCounter(connection, nil)
	c.Intercept = func(_ Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if !alive.Load() {
			return nil, errors.New("the process is dead")
		}
		return next()
	}
	return c
}
