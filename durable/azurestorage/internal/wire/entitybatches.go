package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// The messages of an entity's batch are enqueued hidden before the batch's state is stored, and made
// visible afterwards. If the process crashes in between, they become visible when their visibility
// timeout ends. A .NET worker that takes over the entity has no outbox and need not send them.
//
// A hidden message contains the name of its batch, which .NET ignores. The receiver reads the entity's
// sentinel to find out whether the batch was committed. Messages that were delivered in memory or made
// visible belong to committed batches.

// A run is a sequence of batches with messages that one worker processes for an entity, from loading
// the history until a batch fails. Within a run, batch n is committed if and only if n is at most the
// number of the last committed batch. The messages of an uncommitted batch are therefore recognized at
// any later time, no matter how many batches have followed.

// EntityBatchesColumn is the column of an entity's sentinel that records the committed batches with
// messages. It lists the latest runs, newest first, as MARK:NUMBER, with the number of the last
// committed batch. Numbers increase across runs. .NET's merges do not change the column. Earlier
// versions wrote the number of the last batch, followed by the marks of that batch and the batches
// before it.
const EntityBatchesColumn = "EntityBatches"

// maxRuns is the maximum number of runs in the column.
const maxRuns = 16

// EntityBatches is the content of the column: the latest runs with committed batches, newest first.
type EntityBatches []batchRun // the newest first

// batchRun is a run of an entity's batches.
type batchRun struct {
	mark string
	last int // number of the last committed batch
}

// ParseEntityBatches parses the column.
func ParseEntityBatches(column string) (b EntityBatches) {
	words := strings.Fields(column)
	if len(words) > 0 && !strings.Contains(words[0], ":") {
		last, _ := strconv.Atoi(words[0])
		for i, mark := range words[1:] {
			b = append(b, batchRun{mark, last - i})
		}
		return b
	}
	for _, word := range words {
		mark, number, _ := strings.Cut(word, ":")
		last, _ := strconv.Atoi(number) // 0 for the text of another program
		b = append(b, batchRun{mark, last})
	}
	return b
}

// String returns the text of the column.
func (b EntityBatches) String() string {
	words := make([]string, len(b))
	for i, run := range b {
		words[i] = run.mark + ":" + strconv.Itoa(run.last)
	}
	return strings.Join(words, " ")
}

// Next returns the content of the column after the next batch of the run with the given mark is
// committed.
func (b EntityBatches) Next(mark string) EntityBatches {
	if len(b) == 0 {
		return EntityBatches{{mark, 1}}
	}
	last, before := b[0].last+1, b
	if b[0].mark == mark {
		before = b[1:]
	}
	runs := append(EntityBatches{{mark, last}}, before...)
	return runs[:min(len(runs), maxRuns)]
}

// Name returns the name of the last batch, for its messages.
func (b EntityBatches) Name() string { return fmt.Sprintf("%d %s", b[0].last, b[0].mark) }

// IsCommitted reports whether the batch with the given name was committed. It returns true for batches
// of runs that are older than the recorded runs; the receiver detects requests and responses that it
// has processed already.
func (b EntityBatches) IsCommitted(name string) bool {
	number, mark, _ := strings.Cut(name, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return true
	}
	for _, run := range b {
		if run.mark == mark {
			return n <= run.last
		}
	}
	return len(b) == maxRuns && n <= b[maxRuns-1].last
}
