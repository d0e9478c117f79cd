"""What can be run and within which limits: packs, actions and policies, installed or created one by one."""
