package differential_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/google/go-cmp/cmp"
)

// exchange is a request that was sent to Azurite, and the response.
type exchange struct {
	begin, end     time.Duration // since the start of the recording
	method         string
	service        string
	path           string // in the account
	query          string
	header         http.Header
	body           []byte
	status         int
	answered       http.Header
	answer         []byte
	accountAddress string
}

// receives reports whether the request receives queue messages.
func (e *exchange) receives() bool {
	return e.service == "queue" && e.method == http.MethodGet && strings.HasSuffix(e.path, "/messages")
}

// due returns when to repeat the request, whose exact time of effect is unknown. A request that
// receives messages is repeated at its start: it returned the messages that were visible then.
// It may also have returned messages that became visible later. Other requests are repeated at
// their end: the messages that they hide then become visible no earlier than in Azurite.
func (e *exchange) due() time.Duration {
	if e.receives() {
		return e.begin
	}
	return e.end
}

// recorder is a transport that records requests and responses. It sends one request at a time,
// so that their order is known.
type recorder struct {
	counter *azuritetest.Counter
	begin   time.Time

	mu        sync.Mutex
	exchanges []*exchange
}

func newRecorder(connection string) *recorder {
	r := &recorder{counter: azuritetest.NewCounter(connection, nil), begin: time.Now()}
	r.counter.Intercept = r.record
	return r
}

func (r *recorder) record(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &exchange{begin: time.Since(r.begin), method: req.Method, service: call.Service, query: req.URL.RawQuery, header: req.Header.Clone()}
	account, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.EscapedPath(), "/"), "/")
	e.path, e.accountAddress = "/"+rest, req.URL.Scheme+"://"+req.URL.Host+"/"+account
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		e.body, req.Body = body, io.NopCloser(bytes.NewReader(body))
	}
	resp, err := next()
	if err != nil {
		return nil, err
	}
	e.status, e.answered = resp.StatusCode, resp.Header
	e.answer, err = io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(e.answer))
	e.end = time.Since(r.begin)
	r.exchanges = append(r.exchanges, e)
	return resp, err
}

// The simulated account answers a hub's requests, repeated at the same times, like Azurite.
func TestAccount_AnswersARecordedRunLikeAzurite(t *testing.T) {
	recorded := recordRun(t)
	synctest.Test(t, func(t *testing.T) {
		sim := azsim.New(azsim.Config{Seed: 1})
		p := &player{transport: sim.Worker("w"), names: map[string]string{}, receipts: map[[2]string]string{}, versions: map[[2]string]string{}}
		begin := time.Now()
		for i, e := range recorded {
			time.Sleep(time.Until(begin.Add(e.due())))
			want, got := p.play(t, e)
			for patience := 500; e.receives() && len(got) < len(want) && patience > 0; patience-- {
				time.Sleep(20 * time.Millisecond)
				want, got = p.play(t, e)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("request %d, %s %s%s?%s: responses (-Azurite +simulated):\n%s", i, e.method, e.service, e.path, e.query, diff)
			}
		}
	})
	t.Logf("%d requests", len(recorded))
}

// player repeats Azurite's requests on the simulated account.
//
// names maps the message IDs and ETags of Azurite to the ones of the simulated account. Azurite
// gives rows that are written together the same ETag, so versions maps row keys and ETags of rows
// that were read. Azurite may also give two messages the same receipt, so receipts maps message IDs
// and receipts.
type player struct {
	transport *azsim.Worker
	names     map[string]string
	receipts  map[[2]string]string
	versions  map[[2]string]string
}

// play repeats a request. It returns the compared parts of both responses.
func (p *player) play(t *testing.T, e *exchange) (want, got []string) {
	t.Helper()
	address := fmt.Sprintf("https://sim.%s.core.windows.net%s", e.service, p.translate(e.path))
	if e.query != "" {
		address += "?" + p.translate(p.translateReceipt(messageOf(e.path), e.query))
	}
	body := strings.ReplaceAll(p.translate(p.translateVersions(string(e.body))), e.accountAddress, "https://sim.table.core.windows.net")
	req, err := http.NewRequestWithContext(t.Context(), e.method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = e.header.Clone()
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if v := req.Header.Get(name); v != "" {
			req.Header.Set(name, p.translate(v))
		}
	}
	resp, err := p.transport.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	p.learn(messageOf(e.path), e.answered, resp.Header, string(e.answer), string(answer))
	return compared(e.service, e.status, e.answered, e.answer), compared(e.service, resp.StatusCode, resp.Header, answer)
}

// identities matches the message IDs and ETags of a response.
var identities = regexp.MustCompile(`<MessageId>([^<]*)<|(?i:etag)"?: ?"?(W/\\?"datetime'[^']*'\\?")`)

// message matches the path of a message.
var message = regexp.MustCompile(`/messages/([^/]+)$`)

// messageOf returns the message ID in a path, or "".
func messageOf(path string) string {
	if found := message.FindStringSubmatch(path); found != nil {
		return found[1]
	}
	return ""
}

// received matches the messages of a response, with their receipts.
var received = regexp.MustCompile(`(?s)<MessageId>([^<]*)<.*?<PopReceipt>([^<]*)<`)

// learn records which IDs, ETags and receipts of the simulated account correspond to Azurite's. id
// is the message ID of the request, or "".
func (p *player) learn(id string, wasHeader, isHeader http.Header, was, is string) {
	if w, i := wasHeader.Get("ETag"), isHeader.Get("ETag"); w != "" && i != "" {
		p.names[w] = i
	}
	if w, i := wasHeader.Get("x-ms-popreceipt"), isHeader.Get("x-ms-popreceipt"); w != "" && i != "" {
		p.receipts[[2]string{id, w}] = i
	}
	wereReceived, areReceived := received.FindAllStringSubmatch(was, -1), received.FindAllStringSubmatch(is, -1)
	for n := range min(len(wereReceived), len(areReceived)) {
		p.receipts[[2]string(wereReceived[n][1:])] = areReceived[n][2]
	}
	wereRows, areRows := versionsIn(was), versionsIn(is)
	for n := range min(len(wereRows), len(areRows)) {
		p.versions[[2]string{wereRows[n].RowKey, wereRows[n].ETag}] = areRows[n].ETag
	}
	were, are := identities.FindAllStringSubmatch(was, -1), identities.FindAllStringSubmatch(is, -1)
	for n := range min(len(were), len(are)) {
		w, i := were[n][1]+were[n][2], are[n][1]+are[n][2]
		p.names[strings.ReplaceAll(w, `\`, "")] = strings.ReplaceAll(i, `\`, "")
	}
}

// version is the key and the ETag of a row.
type version struct {
	RowKey string
	ETag   string `json:"odata.etag"`
}

// versionsIn returns the rows of a response, if that is a page of rows.
func versionsIn(answer string) []version {
	var page struct{ Value []version }
	if json.Unmarshal([]byte(answer), &page) != nil {
		return nil
	}
	return page.Value
}

// conditional matches an operation of a transaction with an If-Match header.
var conditional = regexp.MustCompile(`RowKey='([^']*)'[^\n]*\n(?:[^\n]+\n)*?[Ii]f-[Mm]atch: ([^\r\n]*)`)

// translateVersions replaces the ETags of rows that were read.
func (p *player) translateVersions(text string) string {
	return conditional.ReplaceAllStringFunc(text, func(op string) string {
		found := conditional.FindStringSubmatch(op)
		if is, ok := p.versions[[2]string{found[1], found[2]}]; ok {
			return strings.TrimSuffix(op, found[2]) + is
		}
		return op
	})
}

// popReceipt matches the receipt in a query.
var popReceipt = regexp.MustCompile(`popreceipt=([^&]*)`)

// translateReceipt replaces the receipt of a message.
func (p *player) translateReceipt(id, query string) string {
	return popReceipt.ReplaceAllStringFunc(query, func(parameter string) string {
		was, err := url.QueryUnescape(popReceipt.FindStringSubmatch(parameter)[1])
		if is, ok := p.receipts[[2]string{id, was}]; ok && err == nil {
			return "popreceipt=" + url.QueryEscape(is)
		}
		return parameter
	})
}

// translate replaces names of Azurite by names of the simulated account.
func (p *player) translate(text string) string {
	for was, is := range p.names {
		for _, escape := range []func(string) string{func(s string) string { return s }, url.QueryEscape, url.PathEscape} {
			text = strings.ReplaceAll(text, escape(was), escape(is))
		}
	}
	return text
}

// compared returns the parts of a response that clients read.
func compared(service string, status int, header http.Header, body []byte) []string {
	out := []string{fmt.Sprint(status), header.Get("x-ms-error-code"), header.Get("x-ms-lease-id")}
	text := string(body)
	switch {
	case status >= 400:
		out = out[:1] // tables return the code in the body, HEAD returns none
	case service == "table" && strings.Contains(text, "--"):
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "HTTP/1.1") {
				out = append(out, line[:12])
			}
		}
		out = append(out, regexp.MustCompile(`"code":"\w+"`).FindString(text))
	case service == "table":
		var page struct{ Value []json.RawMessage }
		if json.Unmarshal(body, &page) == nil && page.Value != nil {
			for _, e := range page.Value {
				out = append(out, columns(e))
			}
		} else if len(body) > 0 {
			out = append(out, columns(body))
		}
		out = append(out, fmt.Sprint(header.Get("x-ms-continuation-NextPartitionKey") != ""))
	case service == "queue":
		out = append(out, regexp.MustCompile(`<(DequeueCount|MessageText)>[^<]*<`).FindAllString(text, -1)...)
	case service == "blob" && !strings.Contains(text, "<EnumerationResults"):
		out = append(out, text)
	default:
		out = append(out, regexp.MustCompile(`<(Name|LeaseState|LeaseStatus|Content-Length)>[^<]*<`).FindAllString(text, -1)...)
	}
	return out
}

func double(_ context.Context, n string) (string, error) { return n + n, nil }

// doubles calls an activity once, then three times in parallel with a payload that does not fit
// into a message, and waits for a second.
func doubles(ctx *durable.Context, n string) (int, error) {
	first, err := durable.CallActivity(ctx, double, n).Await()
	if err != nil {
		return 0, err
	}
	tasks := make([]*durable.Task[string], 3)
	for i := range tasks {
		tasks[i] = durable.CallActivity(ctx, double, strings.Repeat(first, 20_000))
	}
	ctx.Sleep(time.Second)
	all, err := durable.AwaitAll(ctx, tasks...)
	return len(strings.Join(all, "")), err
}

// runNumber makes names unique: all tests of this process share Azurite.
var runNumber atomic.Int32

// recordRun runs a hub on Azurite and returns its requests.
func recordRun(t *testing.T) []*exchange {
	t.Helper()
	connection := azuritetest.Start(t)
	r := newRecorder(connection)
	c, err := azurestorage.ParseConnectionString(connection)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(c, azurestorage.Config{
		TaskHub: fmt.Sprint("Recorded", runNumber.Add(1)), PartitionCount: 2, LeaseInterval: 20 * time.Second, LeaseAcquireInterval: time.Second,
		MaxQueuePollingInterval: time.Second, Transport: r.counter, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := durable.NewRegistry(durable.Orchestrator("Doubles", doubles), durable.Activity("Double", double))
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	client := durable.NewClient(hub, registry)
	patient := patience.Context(t)
	for i := range 3 {
		instance, err := durable.Start(patient, client, doubles, "x", durable.InstanceID(fmt.Sprint("it's ", i)))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := instance.Wait(patient); err != nil || n != 240_000 {
			t.Fatalf("the instance returned %d (%v); want 240000", n, err)
		}
		if _, err := instance.Purge(patient); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.exchanges)
}
