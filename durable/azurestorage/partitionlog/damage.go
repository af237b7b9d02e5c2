package partitionlog

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
)

// Problem is damage of a hub.
type Problem struct {
	// What says which blobs are missing or damaged.
	What string `json:"problem"`
	// Lost says which data is unreadable.
	Lost string `json:"lost"`
	// Repair says what [Repair] does. It is empty if only restored blobs help.
	Repair string `json:"repair,omitempty"`
	// Repaired means that [Repair] has done that.
	Repaired bool `json:"repaired"`

	info *hubInfo    // hub.json, which the repair creates
	mail *mailRemedy // the repair of a mailbox
}

// mailRemedy makes a receiver continue in another place of a mailbox.
type mailRemedy struct {
	partition int
	to        mailbox.Position
	create    uint64 // the number of a blob that the repair creates, 0 if none
}

// PartitionBlobs counts the blobs of a partition.
type PartitionBlobs struct {
	Partition int       `json:"partition"`
	Log       BlobCount `json:"log"`
	Mailbox   BlobCount `json:"mailbox"`
	Base      BlobCount `json:"base"`
}

// BlobCount is a number of blobs, and their size in bytes.
type BlobCount struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// inventory is the blobs of one partition: sizes of log and mailbox blobs by their numbers, and of
// base files by their names.
type inventory struct {
	log, mail map[uint64]int64
	base      map[string]int64
}

func (i inventory) counts(partition int) PartitionBlobs {
	return PartitionBlobs{partition, countOf(i.log), countOf(i.mail), countOf(i.base)}
}

func countOf[K comparable](sizes map[K]int64) BlobCount {
	c := BlobCount{Blobs: len(sizes)}
	for _, size := range sizes {
		c.Bytes += size
	}
	return c
}

// partOf matches the names of blobs that a partition's records are in.
var partOf = regexp.MustCompile(`^p(\d\d)/((log|mail|base)-(.*))$`)

// inventories sorts the blobs of a container by partition. It skips blobs of other hubs than id,
// which may be empty.
func inventories(blobs []store.BlobInfo, id string) map[int]inventory {
	all := make(map[int]inventory)
	for _, b := range blobs {
		part, of := partOf.FindStringSubmatch(b.Name), b.Metadata[chain.HubKey]
		if part == nil || id != "" && of != "" && of != id {
			continue
		}
		n, _ := strconv.Atoi(part[1])
		if all[n].log == nil {
			all[n] = inventory{map[uint64]int64{}, map[uint64]int64{}, map[string]int64{}}
		}
		number, _ := strconv.ParseUint(part[4], 10, 64)
		switch part[3] {
		case "log":
			all[n].log[number] = b.Size
		case "mail":
			all[n].mail[number] = b.Size
		case "base":
			all[n].base[part[2]] = b.Size
		}
	}
	return all
}

// lostInfo returns the problem of a container without hub.json, and whether the container has
// records of a hub at all. The app's configuration says how many partitions the hub has: an app
// with another number could not have used it.
func lostInfo(blobs []store.BlobInfo, configured int) (p Problem, records bool) {
	ids := make(map[string]bool)
	highest := 0
	for _, b := range blobs {
		part := partOf.FindStringSubmatch(b.Name)
		if part == nil || b.Size == 0 { // processes of a deleted hub may have left empty blobs
			continue
		}
		records = true
		n, _ := strconv.Atoi(part[1])
		highest = max(highest, n)
		if id := b.Metadata[chain.HubKey]; id != "" {
			ids[id] = true
		}
	}
	p.What = infoName + " is missing"
	switch all := slices.Sorted(maps.Keys(ids)); {
	case len(all) == 0:
		p.Lost = "all instances: no blob names the ID of the hub, without which no blob can be read"
	case len(all) > 1:
		p.Lost = "all instances: the blobs are of different hubs, with the IDs " + strings.Join(all, " and ")
	case highest >= configured:
		p.Lost = fmt.Sprintf("nothing, but the app is configured for %d partitions, and partition %d exists; set partitionCount to the number of the hub, and repeat this", configured, highest)
	default:
		p.info = &hubInfo{Format: formatVersion, Partitions: configured, ID: all[0], Chains: created}
		p.Lost = "nothing"
		p.Repair = fmt.Sprintf("creates %s with the ID %s, which the blobs name, and %d partitions, as the app is configured", infoName, all[0], configured)
	}
	return p, records
}

// logFacts is the result of reading a partition.
type logFacts struct {
	damage   error    // the log cannot be read
	named    []string // files that the base consists of
	unread   error    // the position in the mailbox cannot be read
	position mailbox.Position
}

// problemsOf returns the problems of a partition. used means that it certainly had a log and a
// mailbox.
func problemsOf(partition int, has inventory, used bool, f logFacts) (all []Problem) {
	prefix := fmt.Sprintf("p%02d/", partition)
	instances := fmt.Sprintf("the instances of partition %d, until the blobs are restored", partition)
	if len(has.log) == 0 && used {
		base := countOf(has.base)
		all = append(all, Problem{
			What: prefix + "log-: all blobs of the log are missing",
			Lost: fmt.Sprintf("%s; its %d base files with %d bytes cannot be read without the log", instances, base.Blobs, base.Bytes),
		})
	}
	if damage, is := errors.AsType[*DamageError](f.damage); is {
		f.damage = damage
	}
	if f.damage != nil {
		all = append(all, Problem{What: f.damage.Error(), Lost: instances})
	}
	missing := slices.DeleteFunc(slices.Clone(f.named), func(name string) bool { _, exists := has.base[name]; return exists })
	if len(missing) > 0 {
		all = append(all, Problem{
			What: fmt.Sprintf("%s: missing, with %d of the %d files of the base", prefix+missing[0], len(missing), len(f.named)),
			Lost: fmt.Sprintf("the records of partition %d in these files, until they are restored", partition),
		})
	}
	if p, damaged := mailProblem(partition, has, used, f); damaged {
		all = append(all, p)
	}
	return all
}

// mailProblem returns the problem of a partition's mailbox.
func mailProblem(partition int, has inventory, used bool, f logFacts) (p Problem, damaged bool) {
	at := f.position
	at.Blob = max(at.Blob, 1)
	size, exists := has.mail[at.Blob]
	unknown := len(has.log) == 0 || f.damage != nil || f.unread != nil
	newest := at.Blob
	for number := range has.mail {
		newest = max(newest, number)
	}
	blob := func(number uint64) string { return fmt.Sprintf("p%02d/mail-%010d", partition, number) }
	untaken := fmt.Sprintf("mail that partition %d had not taken: requests of clients and messages of other partitions. Instances that wait for it keep waiting", partition)
	switch {
	case unknown && len(has.mail) == 0 && used:
		return Problem{What: blob(1) + ": all blobs of the mailbox are missing", Lost: untaken}, true
	case unknown || len(has.mail) == 0 && !used && f.position == (mailbox.Position{}):
		return p, false
	case exists && size >= int64(at.Offset):
		return gap(has, at.Blob, newest, blob, untaken)
	case exists:
		p = Problem{What: fmt.Sprintf("%s: %d bytes of mail were taken, but it has only %d", blob(at.Blob), at.Offset, size)}
		p.mail = &mailRemedy{partition: partition, to: mailbox.Position{Blob: at.Blob, Offset: uint64(size)}}
	default:
		p = Problem{What: blob(at.Blob) + ": the mailbox blob that the partition reads next is missing"}
		p.mail = &mailRemedy{partition: partition}
		for exists = false; !exists && p.mail.to.Blob <= newest; {
			p.mail.to.Blob = max(p.mail.to.Blob, at.Blob) + 1
			_, exists = has.mail[p.mail.to.Blob]
		}
		if !exists {
			p.mail.create = p.mail.to.Blob
		}
	}
	p.Lost = untaken
	p.Repair = "lets the partition continue at " + blob(p.mail.to.Blob)
	if p.mail.create > 0 {
		p.Repair = fmt.Sprintf("creates the mailbox blob %s, and lets the partition continue there", blob(p.mail.create))
	}
	return p, true
}

// gap returns the problem of a blob that is missing between two others. The partition takes the
// mail before the gap first.
func gap(has inventory, from, newest uint64, blob func(uint64) string, untaken string) (p Problem, damaged bool) {
	for number := from; number <= newest; number++ {
		if _, exists := has.mail[number]; !exists {
			return Problem{What: fmt.Sprintf("%s: missing between blobs of the mailbox; repeat this when a worker has taken the mail before it", blob(number)), Lost: untaken}, true
		}
	}
	return p, false
}
