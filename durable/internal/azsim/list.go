package azsim

import (
	"bytes"
	"fmt"
	"maps"
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
	next, folders, n := "", map[string]bool{}, 0
	for _, name := range c.names(a.cfg.Directories && delimiter == "") {
		if !strings.HasPrefix(name, prefix) || name < marker {
			continue
		}
		if n == most {
			next = name
			break
		}
		if delimiter != "" {
			if i := strings.Index(name[len(prefix):], delimiter); i >= 0 {
				folder := name[:len(prefix)+i+len(delimiter)]
				if !folders[folder] {
					folders[folder] = true
					n++
					b.WriteString("<BlobPrefix><Name>")
					writeEscaped(&b, folder)
					b.WriteString("</Name></BlobPrefix>")
				}
				continue
			}
		}
		n++
		if c.blobs[name] == nil {
			writeDirectory(&b, name)
			continue
		}
		c.blobs[name].writeItem(&b, strings.Contains(strings.ToLower(r.query.Get("include")), "metadata"))
	}
	b.WriteString("</Blobs><NextMarker>")
	writeEscaped(&b, next)
	b.WriteString("</NextMarker></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", b.Bytes())
}

// names returns the names of the blobs, in order, and of the directories that they are in.
func (c *container) names(withDirectories bool) []string {
	all := map[string]bool{}
	for name := range c.blobs {
		all[name] = true
		for i, r := range name {
			if withDirectories && r == '/' && i > 0 {
				all[name[:i]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// writeDirectory writes the entry of a directory. The service adds the metadata whether it
// is asked for or not.
func writeDirectory(w *bytes.Buffer, name string) {
	w.WriteString("<Blob><Name>")
	writeEscaped(w, name)
	w.WriteString("</Name><Properties><Content-Length>0</Content-Length><BlobType>BlockBlob</BlobType><ResourceType>directory</ResourceType>" +
		"<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>")
}
