# The boot loader of the test guest's disk for a BIOS: reads the kernel and its initrd, which lie
# between this and the first partition, unpacks the kernel, and enters it as Xen's PVH boot does.
#
# Under emulation that takes half of what a common boot loader and the kernel's own unpacking do.
# The BIOS reads 64 KiB at once and asks all the time whether they are there, so a virtio disk is
# read without it. scripts/test-guest defines the other names in capitals.
#
# Code, data and stack lie in pages of their own: QEMU's emulation is slow with a page that is both
# written and executed.
.intel_syntax noprefix
.code16
# More fails: a BIOS reads 64 KiB at once at most.
.equ MOST_SECTORS, 127
.equ BUFFER, 0x10000
# Segments in `gdt`.
.equ DATA, 8
.equ CODE, 16
.equ CODE_16, 24
.equ XEN_START_MAGIC, 0x336ec578

.if KERNEL_END > INITRD_ADDRESS || INITRD_ADDRESS + INITRD_BYTES > PACKED_ADDRESS
.error "kernel or initrd is too long for its place"
.endif

.globl _start
_start:
    cli
    xor ax, ax
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov sp, 0x7000
    mov si, offset rest
    mov ah, 0x42
    int 0x13
    jc failed
    ljmp 0, offset second_stage
failed:
    hlt
    jmp failed

# Of the BIOS's "extended read": its own length, sectors, the buffer, and the first sector.
.balign 4
rest:
    .word 16, LOADER_SECTORS - 1, 0x7e00, 0
    .long 1, 0

# Where the partition table lies.
.org 440
    .fill 72, 1, 0

.org 0x400
second_stage:
    mov [drive], dl
    # The memory map, in the shape that PVH wants too.
    mov di, offset memory_map
    xor ebx, ebx
next_range:
    mov eax, 0xe820
    mov ecx, 20
    mov edx, 0x534d4150
    int 0x15
    jc mapped
    add di, 24
    inc dword ptr [ranges]
    test ebx, ebx
    jnz next_range
mapped:
    # Addresses above 1 MiB (A20).
    in al, 0x92
    or al, 2
    out 0x92, al

    cli
    lgdt [gdt_register]
    mov eax, cr0
    or al, 1
    mov cr0, eax
    ljmp CODE, offset find_disk

# The virtio disk whose first sector is this loader's (Virtual I/O Device 1.2, 4.1 and 5.2).
.code32
.equ PCI_ADDRESS, 0xcf8
.equ PCI_DATA, 0xcfc
.equ FIRST_FUNCTION, 0x80000000
.equ LAST_FUNCTION, 0x80ffff00
.equ COMMAND, 4
.equ BUS_MASTER, 4
.equ FIRST_BAR, 0x10
.equ FIRST_CAPABILITY, 0x34
.equ VIRTIO_DISK, 0x10421af4
.equ TRANSITIONAL_DISK, 0x10011af4
.equ OF_VENDOR, 9
.equ COMMON, 1
.equ NOTIFY, 2
# In COMMON.
.equ FEATURE_WORD, 8
.equ FEATURES, 12
.equ STATUS, 20
.equ QUEUE, 22
.equ QUEUE_SIZE, 24
.equ QUEUE_ENABLED, 28
.equ QUEUE_NOTIFY, 30
.equ QUEUE_PARTS, 32
.equ FEATURES_OK, 8
# Three descriptors: request, buffer and answer.
.equ DESCRIPTORS, 0x20000
.equ AVAILABLE, 0x21000
.equ USED, 0x22000
.equ REQUEST, 0x23000
.equ ANSWER, 0x23010
.equ SECTOR, 0x24000

# The word at al of the function's configuration.
read_pci:
    movzx eax, al
    or eax, [function]
    mov dx, offset PCI_ADDRESS
    out dx, eax
    mov dx, offset PCI_DATA
    in eax, dx
    ret

find_disk:
    mov ax, offset DATA
    mov ds, ax
    mov es, ax
    mov ss, ax
    cld
    mov dword ptr [function], FIRST_FUNCTION
next_function:
    mov al, 0
    call read_pci
    cmp eax, offset VIRTIO_DISK
    je found
    cmp eax, offset TRANSITIONAL_DISK
    je found
other_function:
    add dword ptr [function], 0x100
    cmp dword ptr [function], LAST_FUNCTION
    jb next_function
    ljmp CODE_16, offset leave_protected

# A disk from which the BIOS is not to boot may not write to memory yet.
found:
    mov al, offset COMMAND
    call read_pci
    test al, offset BUS_MASTER
    jz other_function
    mov dword ptr [common], 0
    mov dword ptr [notify], 0
    mov al, offset FIRST_CAPABILITY
    call read_pci
next_capability:
    and eax, 0xfc
    jz all_found
    mov ebx, eax
    call read_pci
    mov esi, eax
    cmp al, offset OF_VENDOR
    jne following
    lea eax, [ebx + 4]
    call read_pci
    movzx ecx, al
    lea eax, [ecx * 4 + FIRST_BAR]
    call read_pci
    mov edi, eax
    and edi, 0xfffffff0
    # The other half of an address of 64 bits.
    test al, 4
    jz 1f
    lea eax, [ecx * 4 + FIRST_BAR + 4]
    call read_pci
    test eax, eax
    jnz other_function
1:  lea eax, [ebx + 8]
    call read_pci
    add edi, eax
    mov eax, esi
    shr eax, 24
    cmp al, offset COMMON
    jne 2f
    mov [common], edi
2:  cmp al, offset NOTIFY
    jne following
    mov [notify], edi
    lea eax, [ebx + 16]
    call read_pci
    mov [multiplier], eax
following:
    mov eax, esi
    shr eax, 8
    jmp next_capability

all_found:
    mov ebx, [common]
    test ebx, ebx
    jz other_function
    mov byte ptr [ebx + STATUS], 0
1:  cmp byte ptr [ebx + STATUS], 0
    jne 1b
    mov byte ptr [ebx + STATUS], 3
    # Version 1, and nothing else.
    mov dword ptr [ebx + FEATURE_WORD], 1
    mov dword ptr [ebx + FEATURES], 1
    mov dword ptr [ebx + FEATURE_WORD], 0
    mov dword ptr [ebx + FEATURES], 0
    mov byte ptr [ebx + STATUS], 3 + FEATURES_OK
    test byte ptr [ebx + STATUS], FEATURES_OK
    jz other_function
    mov edi, offset DESCRIPTORS
    mov ecx, (ANSWER - DESCRIPTORS) / 4 + 1
    xor eax, eax
    rep stosd
    mov word ptr [ebx + QUEUE], 0
    mov word ptr [ebx + QUEUE_SIZE], 4
    mov dword ptr [ebx + QUEUE_PARTS], DESCRIPTORS
    mov [ebx + QUEUE_PARTS + 4], eax
    mov dword ptr [ebx + QUEUE_PARTS + 8], AVAILABLE
    mov [ebx + QUEUE_PARTS + 12], eax
    mov dword ptr [ebx + QUEUE_PARTS + 16], USED
    mov [ebx + QUEUE_PARTS + 20], eax
    mov word ptr [ebx + QUEUE_ENABLED], 1
    movzx eax, word ptr [ebx + QUEUE_NOTIFY]
    mul dword ptr [multiplier]
    add [notify], eax
    mov byte ptr [ebx + STATUS], 7 + FEATURES_OK
    # Next, write and both, in the descriptors' flags; no interrupt.
    mov dword ptr [DESCRIPTORS], REQUEST
    mov dword ptr [DESCRIPTORS + 8], 16
    mov dword ptr [DESCRIPTORS + 12], 1 << 16 | 1
    mov dword ptr [DESCRIPTORS + 28], 2 << 16 | 3
    mov dword ptr [DESCRIPTORS + 32], ANSWER
    mov dword ptr [DESCRIPTORS + 40], 1
    mov dword ptr [DESCRIPTORS + 44], 2
    mov word ptr [AVAILABLE], 1

    xor eax, eax
    mov ecx, 1
    mov edi, offset SECTOR
    call read_disk
    mov esi, 0x7c00
    mov ecx, 512 / 4
    repe cmpsd
    jne other_function
    mov ebx, offset parts
1:  mov eax, [ebx]
    mov ecx, [ebx + 4]
    mov edi, [ebx + 8]
    test ecx, ecx
    jz unpack
    call read_disk
    add ebx, 12
    jmp 1b

# From sector eax, ecx sectors to edi.
read_disk:
    mov [REQUEST + 8], eax
    mov [DESCRIPTORS + 16], edi
    shl ecx, 9
    mov [DESCRIPTORS + 24], ecx
    inc word ptr [AVAILABLE + 2]
    mov eax, [notify]
    mov word ptr [eax], 0
1:  pause
    mov ax, [AVAILABLE + 2]
    cmp ax, [USED + 2]
    jne 1b
    mov edi, [DESCRIPTORS + 16]
    cmp byte ptr [ANSWER], 0
    jne failed_32
    ret
failed_32:
    hlt
    jmp failed_32

# Any other disk: by the BIOS.
.code16
leave_protected:
    mov eax, cr0
    and al, 0xfe
    mov cr0, eax
    ljmp 0, offset by_bios
by_bios:
    xor ax, ax
    mov ds, ax
    mov es, ax
    mov ss, ax
    sti
    mov bx, offset parts
next_part:
    mov eax, [bx]
    mov [first_sector], eax
    mov ebp, [bx + 4]
    mov edi, [bx + 8]
    test ebp, ebp
    jz loaded
read:
    mov eax, offset MOST_SECTORS
    cmp eax, ebp
    jbe 1f
    mov eax, ebp
1:  mov [sectors], ax
    pushad
    mov si, offset packet
    mov dl, [drive]
    mov ah, 0x42
    int 0x13
    jc failed
    popad
    # Segments without a limit: once loaded in protected mode, they keep it until the BIOS's next
    # call.
    cli
    lgdt [gdt_register]
    mov ecx, cr0
    or cl, 1
    mov cr0, ecx
    mov dx, offset DATA
    mov ds, dx
    mov es, dx
    and cl, 0xfe
    mov cr0, ecx
    xor dx, dx
    mov ds, dx
    mov es, dx
    mov esi, offset BUFFER
    movzx ecx, word ptr [sectors]
    sub ebp, ecx
    add [first_sector], ecx
    shl ecx, 7
    cld
    rep movs dword ptr es:[edi], dword ptr ds:[esi]
    sti
    test ebp, ebp
    jnz read
    add bx, 12
    jmp next_part

loaded:
    cli
    mov eax, cr0
    or al, 1
    mov cr0, eax
    ljmp CODE, offset protected
.code32
protected:
    mov ax, offset DATA
    mov ds, ax
    mov es, ax
    mov ss, ax
unpack:
    # LZ4's "legacy" frame: a magic number, then blocks, each after its length.
    mov esi, offset PACKED_ADDRESS + 4
    mov edi, offset KERNEL_ADDRESS
block:
    cmp esi, offset PACKED_ADDRESS + PACKED_BYTES
    jae unpacked
    mov eax, [esi]
    add esi, 4
    lea ebp, [esi + eax]

# A length of eax, or more in the bytes that follow, in ecx.
.macro read_length
    mov ecx, eax
    cmp al, 15
    jne 2f
1:  movzx eax, byte ptr [esi]
    inc esi
    add ecx, eax
    cmp al, 255
    je 1b
2:
.endm

sequence:
    movzx eax, byte ptr [esi]
    inc esi
    mov edx, eax
    and edx, 15
    shr eax, 4
    read_length
    test ecx, ecx
    jz match
    # By four bytes; what is too much is written again.
literals:
    mov eax, [esi]
    mov [edi], eax
    add esi, 4
    add edi, 4
    sub ecx, 4
    ja literals
    add esi, ecx
    add edi, ecx
match:
    cmp esi, ebp
    jae block
    movzx ebx, word ptr [esi]
    add esi, 2
    neg ebx
    mov eax, edx
    read_length
    add ecx, 4
    cmp ebx, -4
    ja near_match
far_match:
    mov eax, [edi + ebx]
    mov [edi], eax
    add edi, 4
    sub ecx, 4
    ja far_match
    add edi, ecx
    jmp sequence
near_match:
    mov al, [edi + ebx]
    mov [edi], al
    inc edi
    dec ecx
    jnz near_match
    jmp sequence

unpacked:
    mov ebx, offset start_info
    mov eax, offset KERNEL_ENTRY
    jmp eax

.org 0x1400
drive:
    .byte 0
.balign 4
function:
    .long 0
common:
    .long 0
notify:
    .long 0
multiplier:
    .long 0
packet:
    .word 16
sectors:
    .word 0, 0, BUFFER >> 4
first_sector:
    .long 0, 0
.balign 8
gdt:
    .quad 0, 0x00cf92000000ffff, 0x00cf9a000000ffff, 0x00009a000000ffff
gdt_register:
    .word . - gdt - 1
    .long gdt
# First sector, sectors, address.
parts:
    .long PACKED_SECTOR, PACKED_SECTORS, PACKED_ADDRESS
    .long INITRD_SECTOR, INITRD_SECTORS, INITRD_ADDRESS
    .long 0, 0, 0
.balign 8
# Xen's hvm_start_info: the addresses of one module, the command line and the memory map.
start_info:
    .long XEN_START_MAGIC, 1, 0, 1
    .long initrd, 0, command_line, 0, 0, 0, memory_map, 0
ranges:
    .long 0, 0
initrd:
    .long INITRD_ADDRESS, 0, INITRD_BYTES, 0, 0, 0, 0, 0

# At a place of the disk that others change (docs/test-guest.md).
.org 0x1c00
command_line:
    .incbin "cmdline"
    .byte 0
.if . - command_line > 1024
.error "the command line is too long"
.endif
.org 0x2000
memory_map:
