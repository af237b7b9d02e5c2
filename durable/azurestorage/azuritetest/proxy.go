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

// A Fault is what goes wrong with a request on its way through a [Proxy].
type Fault int

const (
	// Pass is no fault.
	Pass Fault = iota
	// Drop closes the caller's connection; the request never arrives.
	Drop
	// DropAnswer delivers the request and closes the caller's connection in place of
	// an answer.
	DropAnswer
	// Cut delivers the request and closes the caller's connection in the middle of
	// the answer.
	Cut
	// Twice delivers the request two times, one right after the other. The answer is
	// that of the second.
	Twice
	// Abandon delivers the request and then closes both connections, as if the caller
	// had gone away, unless the answer arrives within Fate.Hold of the delivery.
	Abandon
	// Refuse answers 503 ServerBusy with a Retry-After of one second. The request does not
	// reach the service.
	Refuse
)

// String returns the name of the fault.
func (f Fault) String() string {
	return [...]string{"passed", "dropped", "answer dropped", "answer cut", "delivered twice", "abandoned", "refused"}[f]
}

// A Fate is what becomes of a request. That of the zero Fate is delivered and answered
// as if there were no proxy.
type Fate struct {
	// Late is for how long the request waits before it is delivered. That it is
	// delivered then does not depend on the caller, who may have gone or be dead.
	Late time.Duration
	// Hold is for how long the answer waits before the caller gets it.
	Hold time.Duration
	// Fault is what goes wrong.
	Fault Fault
}

// A Plan says what becomes of each request. Several goroutines may ask it at once.
type Plan func(Call) Fate

// A Proxy stands between processes and the services that they call and does to their
// requests what networks, middleboxes and outages do. Make one with [NewProxy]. It
// passes everything on until it has a plan. Requests and answers are passed on whole,
// not bit by bit.
type Proxy struct {
	transport *http.Transport

	mu     sync.Mutex // protects the following
	plan   Plan
	fronts []*front
	faults map[Fault]int
}

// A front is where a proxy listens for the requests to one service.
type front struct {
	proxy   *Proxy
	service string // "blob", "queue", "table" or another name
	address string // in front
	// reservation keeps the port while the proxy is away; nil if the system cannot.
	reservation *os.File
	behind      *url.URL
	listener    net.Listener
	server      *http.Server // nil while the proxy is away
}

// NewProxy returns a proxy that stands in front of nothing yet.
func NewProxy() *Proxy {
	return &Proxy{
		// Services close connections that idle for 5 s; who uses one in that moment
		// would meet a fault that nobody planned.
		transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 2 * time.Second, DisableCompression: true},
		faults:    map[Fault]int{},
	}
}

// Storage stands in front of the services that a connection string has endpoints of, and
// returns the connection string that leads through the proxy.
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

// Service stands in front of a service, and returns the URL that leads to it through the
// proxy. A plan sees its requests as calls of the service of this name. If that is not
// one of the storage services, the name of a call is its method, and its target the path.
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

// Follow makes a plan count from now on; nil passes everything.
func (p *Proxy) Follow(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Leave makes the proxy refuse connections, and cuts those that there are.
func (p *Proxy) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.fronts {
		if f.server != nil {
			f.listener.Close()   // the server may not know it yet
			_ = f.server.Close() // all connections
			f.server = nil
		}
	}
}

// Return ends what Leave began.
func (p *Proxy) Return() error {
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

// Faults returns how many requests had each fault.
func (p *Proxy) Faults() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// decide asks the plan about a request.
func (p *Proxy) decide(call Call) Fate {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	var fate Fate
	if plan != nil {
		fate = plan(call)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[fate.Fault]++
	return fate
}

// open listens, for the second time at the same address.
func (f *front) open() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", f.address)
	if err != nil {
		return fmt.Errorf("proxy in front of %s: %w", f.behind, err)
	}
	f.address, f.listener, f.server = l.Addr().String(), l, &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(l) }(f.server) // ends when Leave closes the server
	return nil
}

// ServeHTTP lets a request meet its fate.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has gone
	}
	fate := f.proxy.decide(f.call(r, body))
	time.Sleep(fate.Late)
	// The caller's context does not count: what is on its way arrives.
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
			time.AfterFunc(fate.Hold, cancel)
		}})
	case Pass, DropAnswer, Cut:
	}
	var got *answer
	for range deliveries {
		if got, err = f.deliver(ctx, r, body); err != nil {
			panic(http.ErrAbortHandler) // the caller sees what the proxy sees
		}
	}
	if fate.Fault != Abandon {
		time.Sleep(fate.Hold)
	}
	switch fate.Fault {
	case DropAnswer:
		panic(http.ErrAbortHandler)
	case Cut:
		got.cut(w)
	case Pass, Drop, Twice, Abandon, Refuse:
		header := w.Header()
		maps.Copy(header, got.header)
		header.Del("Connection")
		header.Del("Keep-Alive")
		w.WriteHeader(got.status)
		_, _ = w.Write(got.text) // the caller may have gone
	}
}

// call reads off a request what it asks for.
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

// An answer is what a service said.
type answer struct {
	status int
	header http.Header
	text   []byte
}

// deliver sends a request to the service and reads all of the answer.
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

// cut writes the first half of an answer and closes the connection.
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
	_, _ = conn.Write(whole.Bytes()[:whole.Len()/2]) // the caller may have gone
}
