package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// The messages of an entity's batch are put into their queues hidden, before the batch's
// state is stored, and made visible after it. If the process dies in between they become
// visible by themselves: a .NET worker that takes the entity over has no outbox, and need
// not send them.
//
// Such a message names its batch, which .NET ignores. This receiver asks the entity's
// sentinel whether the batch counted. A message that was delivered in memory, or made
// visible, belongs to a batch that counted.

// A run is a sequence of batches with messages that one worker does of an entity, from
// reading the history until a batch fails. In a run, batch n counted if and only if
// n <= the last number that counted. So a message of a batch that did not count is known
// as such whenever it becomes visible, however many batches have followed.

// EntityBatchesColumn is the column of an entity's sentinel that says which batches with
// messages counted: the runs that were last, the newest first, as MARK:NUMBER of the
// last batch that counted. Numbers go on from run to run. A merge of .NET's leaves it
// alone. Earlier versions wrote the number of the last batch, and marks of it and those
// before it.
const EntityBatchesColumn = "EntityBatches"

// runsKnown is how many runs the sentinel names.
const runsKnown = 16

// EntityBatches are the batches that counted, as a sentinel names them.
type EntityBatches []batchRun // the newest first

// batchRun is a run of an entity's batches.
type batchRun struct {
	mark string
	last int // that counted
}

// ParseEntityBatches reads the column.
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
		last, _ := strconv.Atoi(number) // another program's
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

// Next returns what is to be known once the next batch of the run with the given mark
// has counted.
func (b EntityBatches) Next(mark string) EntityBatches {
	if len(b) == 0 {
		return EntityBatches{{mark, 1}}
	}
	last, before := b[0].last+1, b
	if b[0].mark == mark {
		before = b[1:]
	}
	runs := append(EntityBatches{{mark, last}}, before...)
	return runs[:min(len(runs), runsKnown)]
}

// Name returns what messages of the last batch say of it.
func (b EntityBatches) Name() string { return fmt.Sprintf("%d %s", b[0].last, b[0].mark) }

// Counted reports whether a batch with the given name counted. One of a run that is older
// than the known ones is taken to have counted: receivers know requests and answers
// that they got before.
func (b EntityBatches) Counted(name string) bool {
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
	return len(b) == runsKnown && n <= b[runsKnown-1].last
}
