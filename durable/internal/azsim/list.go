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

// listBlobs answers with the blobs whose names begin with a prefix, and with a
// delimiter with the folders that they are in.
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
	for _, i := range inOrder(a, c, prefix, delimiter) {
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

// An item of a list is a blob or, if that is nil, what blobs are in: a directory, or with a
// delimiter a folder. Items are in the order of their markers.
type item struct {
	name   string
	marker string
	blob   *blob
}

// inOrder returns what a list with a prefix contains. Clients make up parts of many names, so the
// order by name differs from run to run. The order here depends on the other parts of the names,
// the times of creation and the seed.
func inOrder(a blobService, c *container, prefix, delimiter string) (all []item) {
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

// writeDirectory writes the entry of a directory. The service adds the metadata whether it
// is asked for or not.
func writeDirectory(w *bytes.Buffer, name string) {
	w.WriteString("<Blob><Name>")
	writeEscaped(w, name)
	w.WriteString("</Name><Properties><Content-Length>0</Content-Length><BlobType>BlockBlob</BlobType><ResourceType>directory</ResourceType>" +
		"<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>")
}
