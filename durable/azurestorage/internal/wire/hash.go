package wire

// PartitionOf returns the number of the control queue for an instance, from 0 to count-1. It hashes
// the raw ID, not the escaped one (DurableTask.AzureStorage/Fnv1aHashHelper.cs, ComputeHash;
// AzureStorageOrchestrationService.cs, GetControlQueueAsync).
func PartitionOf(instanceID string, count int) int {
	return int(FNV1a(instanceID) % uint32(count))
}

// FNV1a returns the 32-bit FNV-1a hash of s. Unlike hash/fnv, it does not allocate.
func FNV1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h ^= uint32(s[i])
		h *= 16777619
	}
	return h
}
