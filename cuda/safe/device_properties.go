package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Properties are the common attributes of a device. Attributes that the driver does not
// know are 0 or false. [Device.Attribute] returns all others.
type Properties struct {
	Name            string
	TotalMemory     uint64 // bytes
	Major, Minor    int    // compute capability
	Multiprocessors int
	WarpSize        int // threads
	ClockRate       int // maximum in kHz; 0 if the driver does not report it
	MemoryBusWidth  int // bits
	L2CacheSize     int // bytes

	MaxThreadsPerBlock          int
	MaxBlockDim                 [3]int // threads in x, y, z
	MaxGridDim                  [3]int // blocks in x, y, z
	MaxThreadsPerMultiprocessor int
	MaxBlocksPerMultiprocessor  int

	RegistersPerBlock             int // 32 bits each
	RegistersPerMultiprocessor    int
	SharedMemoryPerBlock          int // bytes, by default
	SharedMemoryPerBlockOptin     int // bytes, for kernels that opt in
	SharedMemoryPerMultiprocessor int // bytes
	ConstantMemory                int // bytes
	MaxPersistingL2               int // bytes
	MaxAccessPolicyWindow         int // bytes

	AsyncEngines       int  // copies that can overlap with kernels
	ConcurrentKernels  bool // kernels of several streams can run at once
	StreamPriorities   bool
	CooperativeLaunch  bool
	ClusterLaunch      bool
	MemoryPools        bool // stream-ordered allocation
	ManagedMemory      bool
	UnifiedAddressing  bool
	ECC                bool
	Integrated         bool // shares memory with the host
	KernelTimeout      bool // the driver aborts long-running kernels
	IPCEvents          bool
	ComputePreemption  bool
	HostRegister       bool
	PageableAccess     bool // kernels can access pageable host memory
	VirtualMemory      bool // ReserveAddress and NewPhysicalMemory work
	StreamMemoryNOR    bool // WaitValue supports NOR
	TensorMap          bool
	Multicast          bool
	NUMANode           int // nearest NUMA node of the host, -1 for none
	MemorySyncDomains  int
	PCIBus, PCIDevice  int
	PCIDomain          int
	MultiGPUBoard      bool
	MultiGPUBoardGroup int
}

// Properties returns the common attributes. Source: cuDeviceGetName, cuDeviceTotalMem,
// cuDeviceGetAttribute.
func (d Device) Properties() (Properties, error) {
	var p Properties
	err := p.ask(d)
	return p, wrap("Device.Properties", err)
}

func (p *Properties) ask(d Device) (err error) {
	if p.Name, err = d.Name(); err != nil {
		return err
	}
	if err = driver.CuDeviceTotalMem(&p.TotalMemory, d.raw); err != nil {
		return err
	}
	for _, a := range p.numbers() {
		if *a.value, err = d.known(a.id); err != nil {
			return err
		}
	}
	for _, a := range p.answers() {
		n, err := d.known(a.id)
		if err != nil {
			return err
		}
		*a.value = n != 0
	}
	return nil
}

// known returns an attribute, or 0 if the driver does not know it.
func (d Device) known(id driver.CUdevice_attribute) (int, error) {
	n, err := d.Attribute(id)
	if errors.Is(err, driver.CUDA_ERROR_INVALID_VALUE) {
		return 0, nil
	}
	return n, err
}

type attribute[T any] struct {
	value *T
	id    driver.CUdevice_attribute
}

func (p *Properties) numbers() []attribute[int] {
	return []attribute[int]{
		{&p.Major, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
		{&p.Minor, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
		{&p.Multiprocessors, driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
		{&p.WarpSize, driver.CU_DEVICE_ATTRIBUTE_WARP_SIZE},
		{&p.ClockRate, driver.CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
		{&p.MemoryBusWidth, driver.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
		{&p.L2CacheSize, driver.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
		{&p.MaxThreadsPerBlock, driver.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
		{&p.MaxBlockDim[0], driver.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
		{&p.MaxBlockDim[1], driver.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
		{&p.MaxBlockDim[2], driver.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
		{&p.MaxGridDim[0], driver.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
		{&p.MaxGridDim[1], driver.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
		{&p.MaxGridDim[2], driver.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
		{&p.MaxThreadsPerMultiprocessor, driver.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
		{&p.MaxBlocksPerMultiprocessor, driver.CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
		{&p.RegistersPerBlock, driver.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
		{&p.RegistersPerMultiprocessor, driver.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
		{&p.SharedMemoryPerBlock, driver.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
		{&p.SharedMemoryPerBlockOptin, driver.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
		{&p.SharedMemoryPerMultiprocessor, driver.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
		{&p.ConstantMemory, driver.CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
		{&p.MaxPersistingL2, driver.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE},
		{&p.MaxAccessPolicyWindow, driver.CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE},
		{&p.AsyncEngines, driver.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
		{&p.NUMANode, driver.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID},
		{&p.MemorySyncDomains, driver.CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT},
		{&p.PCIBus, driver.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
		{&p.PCIDevice, driver.CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
		{&p.PCIDomain, driver.CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
		{&p.MultiGPUBoardGroup, driver.CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID},
	}
}

func (p *Properties) answers() []attribute[bool] {
	return []attribute[bool]{
		{&p.ConcurrentKernels, driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
		{&p.StreamPriorities, driver.CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
		{&p.CooperativeLaunch, driver.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
		{&p.ClusterLaunch, driver.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH},
		{&p.MemoryPools, driver.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
		{&p.ManagedMemory, driver.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
		{&p.UnifiedAddressing, driver.CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
		{&p.ECC, driver.CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
		{&p.Integrated, driver.CU_DEVICE_ATTRIBUTE_INTEGRATED},
		{&p.KernelTimeout, driver.CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
		{&p.IPCEvents, driver.CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
		{&p.ComputePreemption, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
		{&p.HostRegister, driver.CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
		{&p.PageableAccess, driver.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
		{&p.VirtualMemory, driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
		{&p.StreamMemoryNOR, driver.CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR},
		{&p.TensorMap, driver.CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED},
		{&p.Multicast, driver.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED},
		{&p.MultiGPUBoard, driver.CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD},
	}
}
