package wire

// PartitionOf returns the number of the control queue, from 0, that an
// instance's messages go to, in a hub with count of them. It hashes the raw ID,
// not the escaped one (DurableTask.AzureStorage/Fnv1aHashHelper.cs,
// ComputeHash; AzureStorageOrchestrationService.cs, GetControlQueueAsync).
func PartitionOf(instanceID string, count int) int {
	return int(FNV1a(instanceID) % uint32(count))
}

// FNV1a is FNV-1a with 32 bits. The standard library's is the same but would
// allocate.
func FNV1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h ^= uint32(s[i])
		h *= 16777619
	}
	return h
}
