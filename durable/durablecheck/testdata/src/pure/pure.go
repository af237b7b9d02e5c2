// Package pure has what orchestrators do and may do: no finding at all.
package pure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type order struct {
	ID    string         `json:"id"`
	Lines map[string]int `json:"lines"`
	Due   time.Time      `json:"due"`
}

func (o order) String() string { return o.ID }

type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

var (
	idPattern = regexp.MustCompile(`^[a-z]+-(\d+)$`)
	letter    = template.Must(template.New("letter").Parse("Dear {{.ID}}"))
	errEmpty  = errors.New("empty")
	names     = map[int]string{1: "one"}
	policy    = durable.RetryPolicy{MaxAttempts: 4, Handle: func(err error) bool { return !errors.Is(err, errEmpty) }}
)

const approval = durable.Event[bool]("Approval")

func charge(ctx context.Context, o order) (string, error) { time.Sleep(time.Second); return o.ID, nil }

func library(ctx *durable.Context, o order) (string, error) {
	m := idPattern.FindStringSubmatch(strings.ToLower(o.ID))
	if len(m) < 2 || utf8.RuneCountInString(m[1]) == 0 {
		return "", fmt.Errorf("order %q: %w", o, errEmpty)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return "", errors.Join(err, &refusal{why: "number"})
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var back order
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(o, back) {
		return "", err
	}
	var out bytes.Buffer
	if err := letter.Execute(&out, o); err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	u := url.URL{Scheme: "https", Host: "example.com", Path: path.Join("orders", o.ID)}
	keys := slices.Sorted(maps.Keys(o.Lines))
	sort.SliceStable(keys, func(i, j int) bool { return cmp.Less(keys[j], keys[i]) })
	root := math.Sqrt(float64(n)) + float64(new(big.Int).SetInt64(4).Int64())
	return hex.EncodeToString(sum[:]) + base64.StdEncoding.EncodeToString(raw) + u.String() + fmt.Sprint(root, names[n]), nil
}

func patterns(ctx *durable.Context, orders []order) (total int, err error) {
	logger := ctx.Logger().With("instance", string(ctx.InstanceID()))
	deadline := ctx.Now().Add(72 * time.Hour).Round(time.Minute)
	tasks := make([]*durable.Task[string], len(orders))
	for i, o := range orders {
		tasks[i] = durable.CallActivity(ctx, charge, o, policy)
	}
	for task := range durable.AsCompleted(ctx, tasks...) {
		if _, err := task.Await(); err != nil {
			var refused *refusal
			if errors.As(err, &refused) {
				logger.Warn("refused", "why", refused.why)
				continue
			}
			return 0, fmt.Errorf("charge: %w", err)
		}
		total++
	}
	ok, late := approval.Wait(ctx), ctx.Timer(deadline.Sub(ctx.Now()))
	switch durable.AwaitAny(ctx, ok, late) {
	case durable.Awaitable(ok):
		approved, err := ok.Await()
		if err != nil || !approved {
			return 0, err
		}
	default:
		ctx.SetCustomStatus(map[string]any{"late": true, "total": total})
	}
	branch := durable.Go(ctx, func() (int, error) {
		defer logger.Info("branch left")
		ctx.Sleep(time.Minute)
		return total, nil
	})
	total, err = branch.Await()
	if err != nil || ctx.IsReplaying() && total < 0 {
		return total, err
	}
	return durable.ContinueAsNew(ctx, patterns, orders[1:])
}
