package azuritetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// A Fault is a fault of a request that passes through a [Proxy].
type Fault int

const (
	// NoFault is no fault.
	NoFault Fault = iota
	// Drop closes the caller's connection. The service does not receive the request.
	Drop
	// DropResponse delivers the request and closes the caller's connection without a response.
	DropResponse
	// Cut delivers the request and closes the caller's connection in the middle of the response.
	Cut
	// Twice delivers the request two times in succession. The caller gets the second response.
	Twice
	// Abandon delivers the request and then closes both connections, as if the caller had
	// disconnected, unless the response arrives within Handling.ResponseDelay after the delivery.
	Abandon
	// Refuse returns 503 ServerBusy with a Retry-After of one second. The service does not receive
	// the request.
	Refuse
)

// String returns the name of the fault.
func (f Fault) String() string {
	return [...]string{"passed", "dropped", "answer dropped", "answer cut", "delivered twice", "abandoned", "refused"}[f]
}

// A Handling defines how a [Proxy] handles a request. The zero Handling delivers the request and
// returns the response unchanged.
type Handling struct {
	// DeliveryDelay is the delay before the request is delivered. The request is delivered even if
	// the caller disconnects or dies meanwhile.
	DeliveryDelay time.Duration
	// ResponseDelay is the delay before the caller gets the response.
	ResponseDelay time.Duration
	// Fault is the fault to inject.
	Fault Fault
}

// A Plan returns the fate of each request. It must be safe for concurrent use.
type Plan func(Call) Handling

// A Proxy forwards the requests of other processes to services and injects delays and faults.
// Create it with [NewProxy]. Without a plan it forwards all requests unchanged. It buffers whole
// requests and responses. Its methods are safe for concurrent use.
type Proxy struct {
	transport *http.Transport

	mu     sync.Mutex // protects the following
	plan   Plan
	fronts []*front
	faults map[Fault]int
}

// front is the listener of a proxy for one service.
type front struct {
	proxy   *Proxy
	service string // "blob", "queue", "table" or another name
	address string // of the listener
	// reservation keeps the port while the listener is closed. It is nil if the system cannot
	// reserve ports.
	reservation *os.File
	behind      *url.URL
	listener    net.Listener
	server      *http.Server // nil while the proxy is stopped
}

// NewProxy returns a proxy without services.
func NewProxy() *Proxy {
	return &Proxy{
		// Services close connections that are idle for 5 s. A request on such a connection would
		// fail without a planned fault.
		transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 2 * time.Second, DisableCompression: true},
		faults:    map[Fault]int{},
	}
}

// Storage adds the services in a connection string to the proxy. It returns the connection string
// of the proxy.
func (p *Proxy) Storage(connection string) (string, error) {
	parts := strings.Split(connection, ";")
	for i, part := range parts {
		key, value, _ := strings.Cut(part, "=")
		service, found := strings.CutSuffix(key, "Endpoint")
		if !found {
			continue
		}
		through, err := p.Service(strings.ToLower(service), value)
		if err != nil {
			return "", err
		}
		parts[i] = key + "=" + through
	}
	return strings.Join(parts, ";"), nil
}

// Service adds a service to the proxy and returns its URL at the proxy. Plans get its requests as
// calls of the service name. If name is not "blob", "queue" or "table", the name of a call is its
// HTTP method, and its target is the path.
func (p *Proxy) Service(name, endpoint string) (string, error) {
	behind, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	f := &front{proxy: p, service: name, behind: behind}
	if f.address, f.reservation, err = ReservePort(); err != nil {
		return "", fmt.Errorf("proxy in front of %s: %w", behind, err)
	}
	if err := f.open(); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fronts = append(p.fronts, f)
	through := *behind
	through.Host = f.address
	return through.String(), nil
}

// SetPlan sets the plan for the following requests. A nil plan forwards all requests unchanged.
func (p *Proxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Stop closes all connections and makes the proxy reject new ones until [Proxy.Restart].
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.fronts {
		if f.server != nil {
			f.listener.Close()   // the server may not have registered it yet
			_ = f.server.Close() // all connections
			f.server = nil
		}
	}
}

// Restart makes the proxy accept connections again after [Proxy.Stop], at the same addresses.
func (p *Proxy) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.fronts {
		if f.server != nil {
			continue
		}
		if err := f.open(); err != nil {
			return err
		}
	}
	return nil
}

// Faults returns the number of requests by fault.
func (p *Proxy) Faults() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// decide returns the fate of a request and counts its fault.
func (p *Proxy) decide(call Call) Handling {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	var fate Handling
	if plan != nil {
		fate = plan(call)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[fate.Fault]++
	return fate
}

// open starts to listen at the front's address.
func (f *front) open() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", f.address)
	if err != nil {
		return fmt.Errorf("proxy in front of %s: %w", f.behind, err)
	}
	f.address, f.listener, f.server = l.Addr().String(), l, &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(l) }(f.server) // ends when Stop closes the server
	return nil
}

// ServeHTTP handles a request according to its fate.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has disconnected
	}
	fate := f.proxy.decide(f.call(r, body))
	time.Sleep(fate.DeliveryDelay)
	// A request in flight arrives even if the caller disconnects.
	ctx := context.WithoutCancel(r.Context())
	deliveries := 1
	switch fate.Fault {
	case Drop:
		panic(http.ErrAbortHandler)
	case Refuse:
		w.Header().Set("x-ms-error-code", "ServerBusy")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case Twice:
		deliveries = 2
	case Abandon:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			time.AfterFunc(fate.ResponseDelay, cancel)
		}})
	case NoFault, DropResponse, Cut:
	}
	var got *answer
	for range deliveries {
		if got, err = f.deliver(ctx, r, body); err != nil {
			panic(http.ErrAbortHandler) // the caller gets a connection error like the proxy
		}
	}
	if fate.Fault != Abandon {
		time.Sleep(fate.ResponseDelay)
	}
	switch fate.Fault {
	case DropResponse:
		panic(http.ErrAbortHandler)
	case Cut:
		got.cut(w)
	case NoFault, Drop, Twice, Abandon, Refuse:
		header := w.Header()
		maps.Copy(header, got.header)
		header.Del("Connection")
		header.Del("Keep-Alive")
		w.WriteHeader(got.status)
		_, _ = w.Write(got.text) // the caller may have disconnected
	}
}

// call returns the call that a request performs.
func (f *front) call(r *http.Request, body []byte) Call {
	switch f.service {
	case "blob", "queue", "table":
		asked := *r
		asked.Body = streaming.NopCloser(bytes.NewReader(body))
		_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // without the account
		return callOf(f.service, path, &asked)
	}
	return Call{f.service, r.Method, r.URL.Path}
}

// answer is the response of a service.
type answer struct {
	status int
	header http.Header
	text   []byte
}

// deliver sends a request to the service and reads the whole response.
func (f *front) deliver(ctx context.Context, r *http.Request, body []byte) (*answer, error) {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = f.behind.Scheme, f.behind.Host
	out.RequestURI, out.Close = "", false
	out.Header.Del("Connection")
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	resp, err := f.proxy.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, text}, err
}

// cut writes the first half of the response and closes the connection.
func (a *answer) cut(w http.ResponseWriter) {
	resp := http.Response{
		ProtoMajor: 1, ProtoMinor: 1, StatusCode: a.status, Header: a.header,
		Body: io.NopCloser(bytes.NewReader(a.text)), ContentLength: int64(len(a.text)),
	}
	var whole bytes.Buffer
	if resp.Write(&whole) != nil {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	_, _ = conn.Write(whole.Bytes()[:whole.Len()/2]) // the caller may have disconnected
}
