package azsim

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// listBlobs lists the blobs whose names start with a prefix. With a delimiter it also lists
// folders.
func listBlobs(a blobService, c *container, r *Request) *reply {
	prefix, delimiter, marker := r.query.Get("prefix"), r.query.Get("delimiter"), r.query.Get("marker")
	most, err := strconv.Atoi(r.query.Get("maxresults"))
	if err != nil || most <= 0 || most > 5000 {
		most = 5000
	}
	if a.cfg.Loose && r.Roll%4 == 0 { // a page may end anywhere
		most = min(most, int(mix(r.Roll, 7)%4))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8" standalone="yes"?><EnumerationResults ServiceEndpoint="%s" ContainerName="%s"><Prefix>`, r.host, r.Target)
	writeEscaped(&b, prefix)
	b.WriteString("</Prefix><Blobs>")
	next, n := "", 0
	for _, i := range sortedItems(a, c, prefix, delimiter) {
		if i.marker < marker {
			continue
		}
		if n == most {
			next = i.marker
			break
		}
		n++
		switch {
		case i.blob != nil:
			i.blob.writeItem(&b, strings.Contains(strings.ToLower(r.query.Get("include")), "metadata"))
		case delimiter == "":
			writeDirectory(&b, i.name)
		default:
			b.WriteString("<BlobPrefix><Name>")
			writeEscaped(&b, i.name)
			b.WriteString("</Name></BlobPrefix>")
		}
	}
	b.WriteString("</Blobs><NextMarker>")
	writeEscaped(&b, next)
	b.WriteString("</NextMarker></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", b.Bytes())
}

// item is an item of a list: a blob or, if blob is nil, a directory or (with a delimiter) a
// folder. Items are ordered by marker.
type item struct {
	name   string
	marker string
	blob   *blob
}

// sortedItems returns the items with a prefix. Clients generate parts of many names, so the order
// by name would differ between runs. The order instead depends on the other parts of the names,
// the creation times and the seed.
func sortedItems(a blobService, c *container, prefix, delimiter string) (all []item) {
	seen := map[string]bool{}
	add := func(name string, b *blob, place uint64) {
		if !seen[name] && strings.HasPrefix(name, prefix) {
			seen[name] = true
			all = append(all, item{name, fmt.Sprintf("%s!%016x!%s", withoutNoise(name), mix(a.cfg.Seed, place), name), b})
		}
	}
	for name, b := range c.blobs {
		rest, _ := strings.CutPrefix(name, prefix)
		if i := strings.Index(rest, delimiter); i >= 0 && delimiter != "" {
			add(name[:len(name)-len(rest)+i+len(delimiter)], nil, 0)
			continue
		}
		add(name, b, uint64(b.created.Sub(a.start)))
		for i, r := range name {
			if a.cfg.Directories && delimiter == "" && r == '/' && i > 0 {
				add(name[:i], nil, 0)
			}
		}
	}
	slices.SortFunc(all, func(x, y item) int { return cmp.Compare(x.marker, y.marker) })
	return all
}

// writeDirectory writes the item of a directory. Like the service, it always includes the
// metadata.
func writeDirectory(w *bytes.Buffer, name string) {
	w.WriteString("<Blob><Name>")
	writeEscaped(w, name)
	w.WriteString("</Name><Properties><Content-Length>0</Content-Length><BlobType>BlockBlob</BlobType><ResourceType>directory</ResourceType>" +
		"<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>")
}
