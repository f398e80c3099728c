/* pci.h: the names that linux/dma-mapping.h's words once had. There is no bus. */
#ifndef ANYVERBS_LINUX_PCI_H
#define ANYVERBS_LINUX_PCI_H

#include <linux/device.h>
#include <linux/dma-mapping.h>

#define DECLARE_PCI_UNMAP_ADDR(name) DEFINE_DMA_UNMAP_ADDR(name);
#define DECLARE_PCI_UNMAP_LEN(name) DEFINE_DMA_UNMAP_LEN(name);
#define pci_unmap_addr(pointer, name) dma_unmap_addr(pointer, name)
#define pci_unmap_addr_set(pointer, name, value) dma_unmap_addr_set(pointer, name, value)
#define pci_unmap_len(pointer, name) dma_unmap_len(pointer, name)
#define pci_unmap_len_set(pointer, name, value) dma_unmap_len_set(pointer, name, value)

#endif
