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

// exchange is a request as it was sent to Azurite, and the answer.
type exchange struct {
	begin, end     time.Duration // since the recording began
	method         string
	service        string
	path           string // within the account
	query          string
	header         http.Header
	body           []byte
	status         int
	answered       http.Header
	answer         []byte
	accountAddress string
}

// receives reports whether the request receives messages.
func (e *exchange) receives() bool {
	return e.service == "queue" && e.method == http.MethodGet && strings.HasSuffix(e.path, "/messages")
}

// due returns when to make the request again. When exactly it took effect is not
// known: a message that it hid was visible again no later than if it had taken
// effect in the end, and if it received messages, those were visible then that
// were when it began. What became visible meanwhile may or may not be among them.
func (e *exchange) due() time.Duration {
	if e.receives() {
		return e.begin
	}
	return e.end
}

// recorder is a transport that keeps what passes, one request at a time, so that
// their order is known.
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

// What a hub asked of Azurite has the same answers when it is asked of the
// simulated account at the same times.
func TestAccount_AnswersARunOfOursAsAzuriteDid(t *testing.T) {
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
				t.Fatalf("request %d, %s %s%s?%s: answers (-Azurite +simulated):\n%s", i, e.method, e.service, e.path, e.query, diff)
			}
		}
	})
	t.Logf("%d requests", len(recorded))
}

// player asks the simulated account what was asked of Azurite. Names are what
// accounts make up, message IDs and ETags, by what Azurite had made up. It
// gives rows that are written together one ETag; versions are those of rows that were
// read, by their keys and what Azurite had. receipts has pop receipts by the message ID and
// the receipt of Azurite, which may give two messages the same receipt.
type player struct {
	transport *azsim.Worker
	names     map[string]string
	receipts  map[[2]string]string
	versions  map[[2]string]string
}

// play makes a request and returns what is compared of both answers.
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

// made finds what accounts make up in an answer.
var made = regexp.MustCompile(`<MessageId>([^<]*)<|(?i:etag)"?: ?"?(W/\\?"datetime'[^']*'\\?")`)

// message finds the path of a message.
var message = regexp.MustCompile(`/messages/([^/]+)$`)

// messageOf returns the message ID in a path, or "" if it has none.
func messageOf(path string) string {
	if found := message.FindStringSubmatch(path); found != nil {
		return found[1]
	}
	return ""
}

// received finds the messages in an answer, with their receipts.
var received = regexp.MustCompile(`(?s)<MessageId>([^<]*)<.*?<PopReceipt>([^<]*)<`)

// learn notes what the simulated account has made up in the place of what
// Azurite had. id is the message ID of the request, or "".
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
	were, are := made.FindAllStringSubmatch(was, -1), made.FindAllStringSubmatch(is, -1)
	for n := range min(len(were), len(are)) {
		w, i := were[n][1]+were[n][2], are[n][1]+are[n][2]
		p.names[strings.ReplaceAll(w, `\`, "")] = strings.ReplaceAll(i, `\`, "")
	}
}

// version is a row of a page, as far as its ETag goes.
type version struct {
	RowKey string
	ETag   string `json:"odata.etag"`
}

// versionsIn returns the rows of an answer, if it is a page of some.
func versionsIn(answer string) []version {
	var page struct{ Value []version }
	if json.Unmarshal([]byte(answer), &page) != nil {
		return nil
	}
	return page.Value
}

// conditional finds an operation of a transaction on a row that must have an ETag.
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

// popReceipt finds the receipt in a query.
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

// translate replaces names of Azurite by those of the simulated account.
func (p *player) translate(text string) string {
	for was, is := range p.names {
		for _, escape := range []func(string) string{func(s string) string { return s }, url.QueryEscape, url.PathEscape} {
			text = strings.ReplaceAll(text, escape(was), escape(is))
		}
	}
	return text
}

// compared returns what clients read of an answer.
func compared(service string, status int, header http.Header, body []byte) []string {
	out := []string{fmt.Sprint(status), header.Get("x-ms-error-code"), header.Get("x-ms-lease-id")}
	text := string(body)
	switch {
	case status >= 400:
		out = out[:1] // the codes of tables are in their bodies, those of HEAD are not
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

// doubles calls an activity once, three times at once with what does not fit into a
// message, and waits a second.
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
	all, err := durable.AwaitAll(tasks...)
	return len(strings.Join(all, "")), err
}

// runNumber makes names unique, because all runs of this process share Azurite.
var runNumber atomic.Int32

// recordRun runs a hub on Azurite and returns what it asked for.
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
			t.Fatalf("the instance returned %d, %v; want 240000", n, err)
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
