// What tests set and read of the stand-in.
#ifndef TOKEND_TESTS_SIMT_CONTROL_H_
#define TOKEND_TESTS_SIMT_CONTROL_H_

#include <driver_types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tokend::simt {

// In which order what may run next runs. A thread runs until it must wait.
enum class Order { kAscending, kDescending, kInterleaved };

struct Schedule {
  Order warps = Order::kAscending;  // which warp runs ahead of the others; its lanes likewise
  Order blocks = Order::kAscending;
  bool late_copies = false;     // asynchronous copies read and land at the wait
  bool split_mma_sums = false;  // Ampere's two sums of 8 products; else one of 16
  bool late_streams = false;    // what a created stream is given runs when somebody waits for it
};
void SetSchedule(const Schedule& schedule);
const Schedule& CurrentSchedule();

// A bug in a kernel, in words, with kernel, block and thread. A launch that finds
// one fails with cudaErrorLaunchFailure, which stays as on a device until
// ResetDevice(); cudaGetErrorString() then gives the words.
std::vector<std::string> TakeFindings();

// Leaves out the barriers, __syncwarp and waits for copies at these sites ("file:line",
// the file without its folder): a test that still passes does not need or see them.
// TOKEND_SIMT_DROP names such sites with commas; TOKEND_SIMT_RECORD a file to which
// those that ran are added.
void DropBarriers(const std::vector<std::string>& sites);

// Makes call number `after_calls` from now (0: the next) of the cudart function or
// the kernel of that name return `error`; with an empty name, any function or launch.
// Errors that no device recovers from (cudaErrorIllegalAddress, ...) stay.
void FailCall(const std::string& name, int after_calls, cudaError_t error);

// Calls of cudart functions and launches since ResetDevice(), by which a test learns
// how many there are to fail.
int CallCount();

// What a device may do to tensor-core products so that a row's result depends on where
// and beside what it is computed.
enum class MmaFault {
  kNone,
  kColumns,     // the upper half of the columns is summed in another order
  kNeighbours,  // a NaN in one column of B is in the others' sums, too
  kOrder,       // all sums in the other order
};
// In kernels whose name contains `kernel`, until ResetDevice().
void SetMmaFault(MmaFault fault, const std::string& kernel = "");

// A launch as it was asked for.
struct LaunchRecord {
  std::string name;
  const void* kernel;  // the function
  unsigned grid[3];
  unsigned threads;
  size_t shared_bytes;
  bool dependent;
  std::vector<unsigned char> params;  // the kernel's own struct
};
// From now on launches are added to `records` and run nothing; nullptr: they run again.
void RecordLaunches(std::vector<LaunchRecord>* records);

// The device that the stand-in shows.
struct DeviceModel {
  int count = 1;
  int major = 9;
  int minor = 0;
  int multiprocessors = 8;
  size_t memory_bytes = size_t{1} << 30;
  bool integrated = false;
  int driver_version = 13000;  // 1000 major + 10 minor
};
void SetDevice(const DeviceModel& device);
const DeviceModel& CurrentDevice();

// Device memory now allocated.
size_t DeviceBytesInUse();

// Forgets the sticky error, pending faults and findings; the device is the default.
void ResetDevice();

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_CONTROL_H_
