package console

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

const previousPage = `rel="prev" href="([^"]+)"`

func TestInstances_LinkBackToPreviousPages(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	for i := range 110 {
		a.start("Waits", fmt.Sprintf("i-%03d", i))
	}
	var pages []string
	for path := "instances?size=25&prefix=i-"; path != ""; {
		pages = append(pages, a.get(path))
		path = follow(pages[len(pages)-1], nextPage)
	}
	if len(pages) != 5 {
		t.Fatalf("%d pages, want 5", len(pages))
	}
	page := pages[4]
	for _, before := range slices.Backward(pages[:4]) {
		path := follow(page, previousPage)
		if path == "" {
			t.Fatalf("no link to the previous page on %s", page)
		}
		page = a.get(path)
		if d := cmp.Diff(listed(before), listed(page)); d != "" {
			t.Errorf("the page before is another one than it was (-was +is): %s", d)
		}
	}
	if path := follow(page, previousPage); path != "" {
		t.Errorf("the first page leads back to %s", path)
	}
}

func TestWay_FitsIntoAURL(t *testing.T) {
	t.Parallel()
	var trailSoFar trail
	for i := range 200 {
		trailSoFar = trailSoFar.extend(fmt.Sprintf("%03d%s", i, strings.Repeat("x", 97)))
		if n := len(url.Values{"way": trailSoFar}.Encode()); n > maxTrailSize {
			t.Fatalf("after %d pages it has %d bytes, want at most %d", i+1, n, maxTrailSize)
		}
		if last := trailSoFar[len(trailSoFar)-1]; !strings.HasPrefix(last, fmt.Sprintf("%03d", i)) {
			t.Fatalf("after page %d the last is %s", i, last)
		}
	}
	if len(trailSoFar) < 10 {
		t.Errorf("it remembers %d pages, want 10 or more", len(trailSoFar))
	}
	if trailSoFar = trailSoFar.extend(strings.Repeat("x", maxTrailSize)); len(trailSoFar) > 0 {
		t.Errorf("more pages than fit are kept: %d", len(trailSoFar))
	}
}

func TestInstances_AreSortedOnlyIfAllMatchesAreOnOnePage(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	a.await(a.start("Quick", "c"), history.Completed)
	a.await(a.start("Broken", "a"), history.Failed)
	a.await(a.start("Waits", "b"), history.Running)
	for query, want := range map[string]string{
		"": "a b c", "sort=id": "a b c", "sort=id&down=1": "c b a", "sort=name": "a c b", "sort=status": "c a b", "sort=created": "c a b", "sort=created&down=1": "b a c",
		"sort=tags": "a b c", "sort=nonsense&down=1": "a b c", "sort=version": "a b c", // equal instances keep their order
	} {
		if got := strings.Join(listed(a.get("instances?"+query)), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	page := a.get("instances?sort=name")
	if got := strings.Count(page, "aria-sort="); got != 1 || !strings.Contains(page, `aria-sort="ascending"`) {
		t.Errorf("%d columns are sorted by: %s", got, page)
	}
	if got := strings.Join(listed(a.get(follow(page, `aria-sort="ascending"><a class="sort" href="([^"]+)"`))), " "); got != "b c a" {
		t.Errorf("the other way round: %q", got)
	}
	for i := range 25 {
		a.start("Waits", fmt.Sprintf("w-%02d", i))
	}
	page = a.get("instances?size=25&sort=id&down=1")
	if ids := listed(page); ids[0] != "a" {
		t.Errorf("a page of many is sorted as if it were all: %q", ids)
	}
	if strings.Contains(page, "aria-sort") || strings.Contains(page, `class="sort"`) || !strings.Contains(page, "This page is not sorted") {
		t.Errorf("a page of many offers to be sorted: %s", page)
	}
}
