"""The com.microsoft operators of onnxruntime 1.32.0. Generated: ``python -m lazygraph.export.contribs``."""

# ruff: noqa: E501
from __future__ import annotations

# operands (? optional, *n variadic with at least n, ~ of mixed types), types, attributes with defaults
TABLE = """
Attention
  in input:T weights:T bias?:T mask_index?:M past?:T attention_bias?:T past_sequence_length?:M
  out output:T present?:T
  type M = int32
  type T = bfloat16 float float16
  attr do_rotary INT
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr past_present_share_buffer INT
  attr qkv_hidden_sizes INTS
  attr rotary_embedding_dim INT
  attr scale FLOAT
  attr unidirectional INT = 0
AttnLSTM
  in X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T QW?:T MW?:T V?:T M?:T memory_seq_lens?:T1 AW?:T
  out Y?:T Y_h?:T Y_c?:T
  type T = double float
  type T1 = int32
  attr activation_alpha FLOATS
  attr activation_beta FLOATS
  attr activations STRINGS
  attr clip FLOAT
  attr direction STRING = "forward"
  attr hidden_size INT
  attr input_forget INT = 0
BeamSearch
  in input_ids:F max_length:I min_length?:I num_beams:I num_return_sequences:I length_penalty?:T repetition_penalty?:T vocab_mask?:M prefix_vocab_mask?:M attention_mask?:I decoder_input_ids?:I logits_processor?:I
  out sequences:I sequences_scores?:T scores?:T
  type F = float float16 int32
  type I = int32
  type M = int32
  type T = float float16
  attr decoder GRAPH required
  attr decoder_start_token_id INT = -1
  attr early_stopping INT = 0
  attr encoder GRAPH
  attr eos_token_id INT required
  attr init_decoder GRAPH
  attr model_type INT = 0
  attr no_repeat_ngram_size INT = 0
  attr pad_token_id INT required
  attr vocab_size INT = -1
BiasAdd
  in X:T bias:T skip:T
  out Y:T
  type T = float float16
BiasDropout
  in data:T bias:T residual?:T ratio?:T1 training_mode?:T2
  out output:T mask?:T2
  type T = bfloat16 double float float16
  type T1 = bfloat16 double float float16
  type T2 = bool
  attr seed INT
BiasGelu
  in A:T B:T
  out C:T
  type T = bfloat16 double float float16
BiasSoftmax
  in data:T bias:T
  out output:T
  type T = double float float16
  attr axis INT = 1
  attr is_inner_broadcast INT required
BiasSplitGelu
  in X:T bias:T
  out Y:T
  type T = float float16
BifurcationDetector
  in src_tokens:T cur_tokens:T prev_suffix_match_idx:T pred_tokens?:T
  out tokens:T suffix_match_idx:T
  type T = int64
  attr max_ngram_size INT = 3
  attr min_ngram_size INT = 1
BitmaskBiasDropout
  in data:T bias:T residual?:T ratio?:T1 training_mode?:T2
  out output:T mask?:T3
  type T = bfloat16 double float float16
  type T1 = bfloat16 double float float16
  type T2 = bool
  type T3 = uint32
  attr seed INT
BitmaskDropout
  in data:T ratio?:T1 training_mode?:T2
  out output:T mask?:T3
  type T = bfloat16 double float float16
  type T1 = bfloat16 double float float16
  type T2 = bool
  type T3 = uint32
  attr seed INT
BranchwiseRMSNorm
  in X:T scale?:M
  out Y:T
  type M = bfloat16 float float16
  type T = bfloat16 float float16
  attr epsilon FLOAT = 1e-05
  attr num_branches INT = 0
CDist
  in A:T B:T
  out C:T
  type T = double float
  attr metric STRING = "sqeuclidean"
CausalConvWithState
  in input:T weight:T bias?:T past_state?:T
  out output:T present_state:T state_update?:T
  type T = bfloat16 float float16
  attr activation STRING = "none"
  attr channels_last INT = 0
  attr dilation INT = 1
  attr input_channel_offset INT = 0
  attr input_channels INT = 0
  attr ndim INT = 1
  attr state_channels_last INT = -1
  attr state_length INT = 0
  attr state_update_capacity INT = 0
  attr state_window INT = 0
ComplexMul
  in A:T B:T
  out C:T
  type T = double float float16
ComplexMulConj
  in A:T B:T
  out C:T
  type T = double float float16
ConvStateReplay
  in source_backing:T capture_backing:T destination_backing:T metadata:TI
  out destination_out:T
  type T = float float16
  type TI = int64
ConvTransposeWithDynamicPads
  in X:T W:T Pads?:int64 B?:T
  out Y:T
  type T = double float float16
  attr auto_pad STRING = "NOTSET"
  attr dilations INTS
  attr group INT = 1
  attr kernel_shape INTS
  attr output_padding INTS
  attr strides INTS
CropAndResize
  in X:T1 rois:T1 batch_indices:T2 crop_size:T2
  out Y:T1
  type T1 = double float float16
  type T2 = int32
  attr extrapolation_value FLOAT = 0.0
  attr mode STRING = "bilinear"
DecoderAttention
  in query:T key:T q_weight:T kv_weight:T bias:T key_padding_mask?:B key_cache?:T value_cache?:T static_kv:B use_past:B has_layer_state:B has_key_padding_mask:B
  out output:T new_key_cache?:T new_value_cache?:T
  type B = bool
  type T = float float16
  attr mask_filter_value FLOAT
  attr num_heads INT required
DecoderMaskedMultiHeadAttention
  in query:T key?:T value?:T mask_index?:M attention_bias?:T past_key?:T past_value?:T past_sequence_length?:M beam_width?:M cache_indirection?:M bias?:T
  out output:T present_key?:T present_value?:T qk?:QK
  type M = int32
  type QK = float float16
  type T = float float16
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr output_qk INT
  attr past_present_share_buffer INT
  attr scale FLOAT
DecoderMaskedSelfAttention
  in input:T weights:T bias:T mask_index?:M past:T attention_bias?:T past_sequence_length:M beam_width?:M cache_indirection?:M
  out output:T present:T
  type M = int32
  type T = float float16
  attr do_rotary INT
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr past_present_share_buffer INT
  attr scale FLOAT
DequantizeBFP
  in x:T1 shape:T2 strides:T2
  out y:T3
  type T1 = uint8
  type T2 = int64
  type T3 = bfloat16 float float16
  attr bfp_type INT required
  attr block_dim INT = -1
  attr dtype INT = 1
DequantizeLinear
  in x:T1 x_scale:T2 x_zero_point?:T1
  out y:T2
  type T1 = int16 int32 int4 int8 uint16 uint4 uint8
  type T2 = float float16
  attr axis INT
DequantizeWithOrder
  in input:Q scale_input:S
  out output:F
  type F = float float16
  type Q = int8
  type S = float
  attr order_input INT required
  attr order_output INT required
  attr to INT required
DynamicQuantizeLSTM
  in X:T W:T2 R:T2 B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T W_scale:T W_zero_point:T2 R_scale:T R_zero_point:T2
  out Y?:T Y_h?:T Y_c?:T
  type T = float
  type T1 = int32
  type T2 = int8 uint8
  attr activation_alpha FLOATS
  attr activation_beta FLOATS
  attr activations STRINGS
  attr clip FLOAT
  attr direction STRING = "forward"
  attr hidden_size INT
  attr input_forget INT = 0
DynamicQuantizeMatMul
  in A:T1 B:T2 b_scale:T1 b_zero_point?:T2 bias?:T1
  out Y:T1
  type T1 = float
  type T2 = int8 uint8
DynamicSparseAttention
  in query:TQuery key?:TQuery value?:TValue past_key?:TCache past_value?:TCache auxiliary_key?:T auxiliary_value?:T selected_indices:M selected_counts:M seqlens_k:M total_sequence_length:M cos_cache?:T sin_cache?:T position_ids?:int64 q_norm_weight?:T k_norm_weight?:T head_sink?:T committed_length?:M key_scale?:S value_scale?:S
  out output:T present_key?:TCache present_value?:TCache validation_status?:M
  type M = int32
  type S = float
  type T = bfloat16 float float16
  type TCache = bfloat16 float float16 int8
  type TQuery = bfloat16 float float16
  type TValue = bfloat16 float float16
  attr attention_mode STRING = "selected_only"
  attr auxiliary_kv_shared INT = 0
  attr do_rotary INT = 0
  attr is_causal INT = 1
  attr kv_num_heads INT required
  attr local_window_size INT = -1
  attr num_heads INT required
  attr output_bf16 INT = 0
  attr qk_norm_epsilon FLOAT = 1e-06
  attr rotary_interleaved INT = 0
  attr rotary_offset INT = 0
  attr scale FLOAT
  attr selected_kv_source STRING = "main"
  attr smooth_softmax INT = 0
DynamicTimeWarping
  in input:F
  out output:I
  type F = float
  type I = int32
EPContext
  in inputs*0~:T
  out outputs*1~:T
  type T = bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8
  attr embed_mode INT = 1
  attr ep_cache_context STRING
  attr ep_sdk_version STRING
  attr hardware_architecture STRING
  attr main_context INT = 1
  attr max_size INT = 0
  attr notes STRING
  attr onnx_model_filename STRING
  attr partition_name STRING
  attr source STRING
EmbedLayerNormalization
  in input_ids:T1 segment_ids?:T1 word_embedding:T position_embedding:T segment_embedding?:T gamma:T beta:T mask?:T1 position_ids?:T1
  out output:T mask_index?:T1 embedding_sum?:T
  type T = float float16
  type T1 = int32
  attr epsilon FLOAT = 1e-12
  attr mask_index_type INT
EngramGate
  in key:T query:T value:T key_norm_scale:T query_norm_scale:T conv_norm_scale?:T
  out output:T gated_value_normed?:T
  type T = bfloat16 float float16
  attr epsilon FLOAT = 1e-05
ExpandDims
  in X:T axis:int32
  out Y:T
  type T = bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8
FastGelu
  in X:T bias?:T
  out Y:T
  type T = bfloat16 double float float16
FusedConv
  in X:T W:T B?:T Z?:T
  out Y:T
  type T = double float float16
  attr activation STRING
  attr activation_params FLOATS
  attr auto_pad STRING = "NOTSET"
  attr dilations INTS
  attr group INT = 1
  attr kernel_shape INTS
  attr pads INTS
  attr strides INTS
FusedGemm
  in A:T B:T C?:T
  out Y:T
  type T = double float float16 int32 int64 uint32 uint64
  attr activation STRING
  attr activation_alpha FLOAT
  attr activation_beta FLOAT
  attr activation_gamma FLOAT
  attr alpha FLOAT = 1.0
  attr beta FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
FusedMatMul
  in A:T B:T
  out Y:T
  type T = bfloat16 double float float16
  attr alpha FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
  attr transBatchA INT = 0
  attr transBatchB INT = 0
FusedMatMulActivation
  in A:T B:T
  out Y:T
  type T = bfloat16 double float float16
  attr activation STRING required
  attr activation_alpha FLOAT
  attr activation_axis INT
  attr activation_beta FLOAT
  attr activation_gamma FLOAT
  attr alpha FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
  attr transBatchA INT = 0
  attr transBatchB INT = 0
GatedAdd
  in X:T Y:T gate:T gate_weight?:T
  out output:T
  type T = bfloat16 float float16
GatedDeltaNet
  in query:T key?:T value?:T cu_seqlens?:TI decay?:TG beta?:TG initial_state?:TS a_log?:TS dt_bias?:TS capture_count?:TI state_update_active?:TI
  out output:T final_state?:TS state_update?:TS
  type T = bfloat16 float float16
  type TG = bfloat16 float float16
  type TI = int32
  type TS = float
  attr beta_activation STRING = "none"
  attr chunk_size INT = 64
  attr gate_activation STRING = "none"
  attr gate_lower_bound FLOAT = -5.0
  attr qk_l2_norm INT = 0
  attr scale FLOAT = 0.0
  attr state_update_capacity INT = 0
  attr update_rule STRING = "gated_delta"
GatedDeltaNetStateReplay
  in source_backing:T capsule_backing:T destination_backing:T metadata:TI
  out destination_out:T
  type T = float
  type TI = int64
GatedRMSNorm
  in X:T scale:T gate:T
  out Y:T
  type T = bfloat16 float float16
  attr activation STRING = "silu"
  attr epsilon FLOAT = 1e-05
GatedRelativePositionBias
  in query_layer:T query_bias:T rel_pos:T weight:T bias:T eco_a:T token_offset?:M
  out output:T
  type M = int32
  type T = float float16
  attr num_heads INT required
GatherBlockQuantized
  in data:T1 indices:Tind scales:T2 zero_points?:T1
  out output:T2
  type T1 = float4e2m1 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int4 uint4 uint8
  type T2 = bfloat16 float float16
  type Tind = int32 int64
  attr bits INT = 4
  attr block_size INT = 128
  attr gather_axis INT = 0
  attr quantize_axis INT = 1
GatherND
  in data:T indices:Tind
  out output:T
  type T = bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8
  type Tind = int32 int64
GatherPacked
  in data:T1 indices:Tind
  out output:T2
  type T1 = uint8
  type T2 = bfloat16 float float16
  type Tind = int32 int64
  attr K INT required
  attr output_dtype INT = 16
  attr packed_type INT required
Gelu
  in X:T
  out Y:T
  type T = bfloat16 double float float16
GemmFastGelu
  in X:T W:T bias?:T
  out Y:T
  type T = bfloat16 float float16
GemmFloat8
  in A:TA B:TB C?:TC scaleA?:TS scaleB?:TS scaleY?:TS
  out Y:TR
  type TA = bfloat16 float float16 float8e4m3fn float8e5m2
  type TB = bfloat16 float float16 float8e4m3fn float8e5m2
  type TC = bfloat16 float float16
  type TR = bfloat16 float float16 float8e4m3fn float8e5m2
  type TS = float
  attr activation STRING
  attr alpha FLOAT = 1.0
  attr beta FLOAT = 0.0
  attr dtype INT = 1
  attr transA INT = 0
  attr transB INT = 0
GemmaRotaryEmbedding
  in emb:U q:T q_rot:T k:T k_rot:T
  out output1:T output2:T
  type T = float16
  type U = float
GreedySearch
  in input_ids:I max_length:I min_length?:I repetition_penalty?:T vocab_mask?:I prefix_vocab_mask?:I attention_mask?:I
  out sequences:I
  type I = int32
  type T = float
  attr decoder GRAPH required
  attr decoder_start_token_id INT = -1
  attr encoder GRAPH
  attr eos_token_id INT required
  attr init_decoder GRAPH
  attr model_type INT = 0
  attr no_repeat_ngram_size INT = 0
  attr pad_token_id INT required
  attr vocab_size INT = -1
GridSample
  in X:T1 Grid:T1
  out Y:T2
  type T1 = bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8
  type T2 = double float float16
  attr align_corners INT = 0
  attr mode STRING = "bilinear"
  attr padding_mode STRING = "zeros"
GroupNorm
  in X:T gamma:M beta:M
  out Y:T
  type M = float float16
  type T = float float16
  attr activation INT required
  attr channels_last INT = 1
  attr epsilon FLOAT = 1e-05
  attr groups INT required
GroupQueryAttention
  in query:T key?:T value?:T past_key?:T_CACHE past_value?:T_CACHE seqlens_k:M total_sequence_length:M cos_cache?:T sin_cache?:T position_ids?:int64 attention_bias?:T head_sink?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE q_norm_weight?:T k_norm_weight?:T query_seqlens?:M
  out output:T present_key?:T_CACHE present_value?:T_CACHE output_qk?:T
  type M = int32
  type T = bfloat16 float float16
  type T_CACHE = bfloat16 float float16 float8e4m3fn int8 uint8
  type T_KV_SCALE = float
  attr causal INT = 1
  attr do_rotary INT
  attr k_norm_epsilon FLOAT
  attr k_quant_type STRING = "NONE"
  attr kv_cache_bit_width INT
  attr kv_num_heads INT required
  attr local_window_size INT = -1
  attr num_heads INT required
  attr q_norm_epsilon FLOAT
  attr qk_norm_epsilon FLOAT = 1e-06
  attr qk_output INT = 0
  attr rotary_interleaved INT
  attr scale FLOAT
  attr sliding_window_cache INT = 0
  attr smooth_softmax INT = -1
  attr softcap FLOAT
  attr v_quant_type STRING = "NONE"
HyperConnectionLowRankMix
  in streams:T norm_scale:T down_weight:T up_weight:T inject_weight:T prev_block_output?:T prev_post_gate?:T
  out pre_output:T post_gate:T streams_out?:T
  type T = bfloat16 float float16
  attr epsilon FLOAT = 1e-05
  attr gate_div FLOAT = 1.0
  attr gate_mul FLOAT = 1.0
  attr num_branches INT required
  attr reduction_scale FLOAT = 1.0
  attr silu_alpha FLOAT = 1.0
HyperConnectionPostMix
  in streams:T block_output:T post_mix:M stream_mix?:M
  out output:T
  type M = bfloat16 float float16
  type T = bfloat16 float float16
  attr num_branches INT = 0
HyperConnectionPreMix
  in streams:T pre_mix:M
  out output:T
  type M = bfloat16 float float16
  type T = bfloat16 float float16
  attr num_branches INT = 0
  attr reduction_scale FLOAT = 1.0
Inverse
  in X:T
  out Y:T
  type T = double float float16
Irfft
  in X:T
  out Y:T
  type T = double float float16
  attr normalized INT = 0
  attr onesided INT = 1
  attr signal_ndim INT required
IsAllFinite
  in input*1:V
  out output:T
  type T = bool
  type V = bfloat16 double float float16
  attr isinf_only INT = 0
  attr isnan_only INT = 0
LinearAttention
  in query:T key:T value:T past_state?:S decay?:T beta?:T
  out output:T present_state:S
  type S = bfloat16 float float16
  type T = bfloat16 float float16
  attr chunk_size INT = 64
  attr kv_num_heads INT required
  attr q_num_heads INT required
  attr scale FLOAT = 0.0
  attr state_window INT = 0
  attr update_rule STRING = "gated_delta"
LinearAttentionGate
  in a:T dt_bias:TF decay_scale:TF b?:T
  out decay:T beta?:T
  type T = bfloat16 float float16
  type TF = float
LongformerAttention
  in input:T weight:T bias:T mask:T global_weight:T global_bias:T global:G
  out output:T
  type G = int32
  type T = float float16
  attr num_heads INT required
  attr window INT required
MRotaryEmbedding
  in input:T position_ids:M cos_cache:T sin_cache:T
  out output:T
  type M = int64
  type T = bfloat16 float float16
  attr interleaved INT
  attr is_packed_batching INT
  attr mrope_layout INT
  attr mrope_section INTS required
  attr num_heads INT
  attr rotary_embedding_dim INT
  attr scale FLOAT
Mamba2Verify
  in projection:T conv_state:T ssm_state:F conv_weight:T conv_bias:T dt_bias:F A_negative:F D:F norm_weight:F state_row:I
  out Y:T conv_snapshots:T ssm_snapshots:F xbc?:T readout?:F
  type F = float
  type I = int32
  type T = bfloat16
  attr d_state INT = 128
  attr epsilon FLOAT = 1e-05
  attr head_dim INT = 64
  attr heads INT required
  attr n_groups INT required
  attr time_step_min FLOAT = 0.001
MatMulBlockQuantizedFp4Weight
  in A:T B:T1 weight_scale:T2 weight_scale_2:T3 input_scale?:T3 bias?:T
  out Y:T
  type T = bfloat16 float16
  type T1 = uint8
  type T2 = uint8
  type T3 = float
  attr block_size INT = 16
MatMulBlockQuantizedFp8Weight
  in A:T B:T1 b_scale:T2 a_scale?:T2 bias?:T
  out Y:T
  type T = bfloat16 float16
  type T1 = float8e4m3fn
  type T2 = float
  attr block_size INT = 128
MatMulBnb4
  in A:T1 B:T2 absmax:T1
  out Y:T1
  type T1 = bfloat16 float float16
  type T2 = uint8
  attr K INT required
  attr N INT required
  attr block_size INT required
  attr quant_type INT required
  attr training_mode INT = 0
  attr transB INT = 1
MatMulFpQ4
  in A:T1 B:T2 B_shape:T3
  out Y:T1
  type T1 = float
  type T2 = uint8
  type T3 = int64
  attr blk_quant_type INT = 1
MatMulInteger16
  in A:T1 B:T2
  out Y:T3
  type T1 = int16 uint16
  type T2 = int16 uint16
  type T3 = int32 uint32
MatMulIntegerToFloat
  in A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point?:T1 b_zero_point?:T2 bias?:T3
  out Y:T3
  type T1 = int8 uint8
  type T2 = int8 uint8
  type T3 = float float16
MatMulNBits
  in A:T1 B:T2 scales:T1 zero_points?:T3 g_idx?:T4 bias?:T1
  out Y:T1
  type T1 = bfloat16 float float16
  type T2 = uint8
  type T3 = bfloat16 float float16 uint8
  type T4 = int32
  attr K INT required
  attr N INT required
  attr accuracy_level INT = 0
  attr bits INT = 4
  attr block_size INT required
  attr weight_prepacked INT = 0
MatMulNBitsMlp
  in A:T1 skip?:T1 norm_scale?:T1 gate_B:T2 gate_scales:T1 gate_bias?:T1 up_B:T2 up_scales:T1 up_bias?:T1
  out Y:T1 input_skip_bias_sum?:T1
  type T1 = bfloat16 float float16
  type T2 = uint8
  attr K INT required
  attr N INT required
  attr accuracy_level INT = 0
  attr activation STRING required
  attr bits INT = 4
  attr block_size INT required
  attr epsilon FLOAT = 1e-05
MatMulNBitsQLoRA
  in X:T W:TQ scales:T lora_A:TQ lora_A_scales:T lora_B:TQ lora_B_scales:T
  out Y:T
  type T = float float16
  type TQ = uint8
  attr K INT required
  attr N INT required
  attr accuracy_level INT = 0
  attr bits INT = 4
  attr block_size INT = 32
  attr lora_bits INT = 8
  attr lora_block_size INT = 32
MatMulNBitsQkv
  in A:T1 skip?:T1 norm_scale:T1 q_B:T2 q_scales:T1 q_bias?:T1 k_B:T2 k_scales:T1 k_bias?:T1 v_B:T2 v_scales:T1 v_bias?:T1
  out Q:T1 K:T1 V:T1 input_skip_bias_sum?:T1
  type T1 = bfloat16 float float16
  type T2 = uint8
  attr K INT required
  attr Nkv INT required
  attr Nq INT required
  attr accuracy_level INT = 0
  attr bits INT = 4
  attr block_size INT required
  attr epsilon FLOAT = 1e-06
MatMulPacked
  in A:T1 B:T2 global_scale?:Tscale
  out Y:T1
  type T1 = bfloat16 float16
  type T2 = uint8
  type Tscale = float
  attr K INT required
  attr N INT required
  attr activation_type STRING = "none"
  attr packed_type INT required
MaxpoolWithMask
  in X:T M:int32
  out Y:T
  type T = float
  attr auto_pad STRING = "NOTSET"
  attr kernel_shape INTS
  attr pads INTS
  attr storage_order INT = 0
  attr strides INTS
MoE
  in input:T router_probs:T fc1_experts_weights:T fc1_experts_bias?:T fc2_experts_weights:T fc2_experts_bias?:T fc3_experts_weights?:T fc3_experts_bias?:T
  out output:T
  type T = bfloat16 float float16
  attr activation_alpha FLOAT = 1.0
  attr activation_beta FLOAT = 0.0
  attr activation_type STRING = "relu"
  attr k INT = 1
  attr normalize_routing_weights INT = 0
  attr swiglu_fusion INT = 0
  attr swiglu_limit FLOAT
  attr swiglu_limit_after_activation INT = 0
  attr use_sparse_mixer INT = 0
MoEGroupRouter
  in logits:T expert_bias:TF projection_weight?:T
  out router_probs?:T selection_scores?:TF router_weights?:TF
  type T = bfloat16 float float16
  type TF = float
  attr group_topk INT = 2
  attr n_group INT = 1
  attr router_sentinel FLOAT = -10000.0
  attr top_k INT required
  attr topk_group INT = 1
MoEPacked
  in input:T router_probs:TR gate_experts_weights:T2 up_experts_weights?:T2 down_experts_weights:T2 router_weights?:TR
  out output:T
  type T = bfloat16 float16
  type T2 = uint8
  type TR = bfloat16 float float16
  attr activation_type STRING = "swiglu"
  attr down_type INT required
  attr gate_type INT required
  attr k INT = 1
  attr normalize_routing_weights INT = 1
  attr routed_scaling_factor FLOAT = 1.0
  attr routing_epsilon FLOAT = 0.0
  attr up_type INT = -1
MulInteger
  in A:T A_zero_point?:T B:T B_zero_point?:T
  out C:T1
  type T = int8 uint8
  type T1 = int32
MultiHeadAttention
  in query:T key?:T value?:T bias?:T key_padding_mask?:M attention_bias?:T past_key?:T past_value?:T past_sequence_length?:M cache_indirection?:M
  out output:T present_key?:T present_value?:T qk?:QK
  type M = int32
  type QK = bfloat16 float float16
  type T = bfloat16 float float16
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr scale FLOAT
  attr unidirectional INT = 0
MurmurHash3
  in X:T1
  out Y:T2
  type T1 = double float int32 int64 string uint32 uint64
  type T2 = int32 uint32
  attr positive INT = 1
  attr seed INT = 0
NGramHashMapping
  in input_ids:M multipliers:M vocab_sizes:M past_ids?:M head_offsets?:M eos_token_id?:M segment_ids?:int32
  out hash_ids:M present_ids?:M
  type M = int32 int64
  attr max_ngram_size INT required
  attr n_head_per_ngram INT required
  attr pad_id INT required
  attr reset_on_eos INT = 0
NGramRepeatBlock
  in input_ids:Tid scores:T
  out scores_out:T
  type T = float
  type Tid = int64
  attr ngram_size INT required
NhwcConv
  in X:T W:T B?:T
  out Y:T
  type T = double float float16
  attr auto_pad STRING = "NOTSET"
  attr dilations INTS
  attr group INT = 1
  attr kernel_shape INTS
  attr pads INTS
  attr strides INTS
NhwcFusedConv
  in X:T W:T B?:T Z?:T
  out Y:T
  type T = float float16
  attr activation STRING
  attr activation_params FLOATS
  attr auto_pad STRING = "NOTSET"
  attr dilations INTS
  attr group INT = 1
  attr kernel_shape INTS
  attr pads INTS
  attr strides INTS
NhwcMaxPool
  in x:T
  out y:T
  type T = int8 uint8
  attr auto_pad STRING = "NOTSET"
  attr ceil_mode INT = 0
  attr dilations INTS
  attr kernel_shape INTS required
  attr pads INTS
  attr strides INTS
PackedAttention
  in input:T weights:T bias:T token_offset:M cumulative_sequence_length:M attention_bias?:T
  out output:T
  type M = int32
  type T = float float16
  attr num_heads INT required
  attr qkv_hidden_sizes INTS
  attr scale FLOAT
PackedMultiHeadAttention
  in query:T key?:T value?:T bias?:T token_offset:M cumulative_sequence_length:M attention_bias?:T
  out output:T
  type M = int32
  type T = float float16
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr scale FLOAT
PackedSparseAttentionIndexer
  in query:T key?:T query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T cumulative_sequence_lengths:M past_sequence_lengths:M gate?:T position_bias?:T head_weights?:T position_ids?:I past_key_state:T_KEY past_kv_buffer:T past_gate_buffer?:T past_state_lengths:M state_update_capture_count?:M state_update_active?:M indexshare_mode?:M merged_indices?:M merged_counts?:M merged_status?:M
  out selected_indices:M selected_counts:M present_key_state:T_KEY present_kv_buffer:T present_gate_buffer?:T present_state_lengths:M state_update?:T indexshare_status?:M state_status?:M
  type I = int64
  type M = int32
  type T = bfloat16 float float16
  type T_KEY = bfloat16 float float16
  attr compress_ratio INT required
  attr epsilon FLOAT = 1e-06
  attr head_weight_scale FLOAT
  attr index_topk INT
  attr indexshare_state_policy STRING = "default"
  attr max_output_entries INT = 0
  attr policy_mode STRING required
  attr scale FLOAT
  attr state_capacity INT required
  attr state_update_capacity INT = 0
  attr token_budget INT
PackedSparseAttentionIndexerMerge
  in base_indices:T base_counts:T base_row_indices:T range_starts?:T range_ends?:T additional_indices?:T additional_counts?:T
  out selected_indices:T selected_counts:T status:T
  type T = int32
  attr max_output_entries INT required
  attr policy_mode STRING required
Pad
  in data:T pads:int64 value?:T
  out output:T
  type T = double float float16
  attr mode STRING = "constant"
PagedAttention
  in query:T key?:T value?:T key_cache:T_CACHE value_cache?:T_CACHE cumulative_sequence_length:S past_seqlens:S block_table:S cos_cache?:T sin_cache?:T slot_mapping?:S head_sink?:T q_norm_weight?:T k_norm_weight?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE attention_metadata?:S
  out output:T key_cache_out?:T_CACHE value_cache_out?:T_CACHE
  type S = int32
  type T = bfloat16 float16
  type T_CACHE = bfloat16 float16 float8e4m3fn int8 uint8
  type T_KV_SCALE = float
  attr do_rotary INT
  attr is_causal INT = 1
  attr k_cache_dtype STRING = ""
  attr k_quant_type STRING = "NONE"
  attr kv_cache_layout STRING = "SEPARATE"
  attr kv_num_heads INT required
  attr local_window_size INT = -1
  attr num_heads INT required
  attr qk_norm_epsilon FLOAT
  attr rotary_interleaved INT
  attr rotary_offset INT
  attr scale FLOAT
  attr softcap FLOAT
  attr v_cache_dtype STRING = ""
  attr v_head_size INT
  attr v_quant_type STRING = "NONE"
QAttention
  in input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index?:T4 input_zero_point?:T1 weight_zero_point?:T2 past?:T3
  out output:T3 present?:T3
  type T1 = int8 uint8
  type T2 = int8 uint8
  type T3 = float float16
  type T4 = int32
  attr do_rotary INT
  attr mask_filter_value FLOAT
  attr num_heads INT required
  attr past_present_share_buffer INT
  attr scale FLOAT
  attr unidirectional INT = 0
QEmbedLayerNormalization
  in input_ids:T1 segment_ids?:T1 word_embedding_quant:T2 position_embedding_quant:T2 segment_embedding?:T2 gamma_quant:T2 beta_quant:T2 mask?:T1 word_embedding_scale:T position_embedding_scale:T segment_embedding_scale?:T gamma_scale:T beta_scale:T word_embedding_zero_point:T2 position_embedding_zero_point:T2 segment_embedding_zero_point?:T2 gamma_zero_point:T2 beta_zero_point:T2
  out layernorm_out:T mask_index_out:T1
  type T = float
  type T1 = int32
  type T2 = int8 uint8
  attr epsilon FLOAT = 1e-12
QGemm
  in A:TA a_scale:T a_zero_point:TA B:TB b_scale:T b_zero_point:TB C?:TC y_scale?:T y_zero_point?:TYZ
  out Y:TY
  type T = float
  type TA = int8 uint8
  type TB = int8 uint8
  type TC = int32
  type TY = float int8 uint8
  type TYZ = int8 uint8
  attr alpha FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
QLinearAdd
  in A:T A_scale:float A_zero_point?:T B:T B_scale:float B_zero_point?:T C_scale:float C_zero_point?:T
  out C:T
  type T = int8 uint8
QLinearAveragePool
  in X:T x_scale:float x_zero_point?:T y_scale:float y_zero_point?:T
  out Y:T
  type T = int8 uint8
  attr auto_pad STRING = "NOTSET"
  attr ceil_mode INT = 0
  attr channels_last INT = 0
  attr count_include_pad INT = 0
  attr kernel_shape INTS required
  attr pads INTS
  attr strides INTS
QLinearConcat
  in Y_scale:TF Y_zero_point:T8 inputs*1~:TV
  out Y:T8
  type T8 = int8 uint8
  type TF = float
  type TV = float int8 uint8
  attr axis INT required
QLinearConv
  in x:T1 x_scale:float x_zero_point:T1 w:T2 w_scale:float w_zero_point:T2 y_scale:float y_zero_point:T3 B?:T4
  out y:T3
  type T1 = int8 uint8
  type T2 = int8 uint8
  type T3 = int8 uint8
  type T4 = int32
  attr auto_pad STRING = "NOTSET"
  attr channels_last INT = 0
  attr dilations INTS
  attr group INT = 1
  attr kernel_shape INTS
  attr pads INTS
  attr strides INTS
QLinearGlobalAveragePool
  in X:T x_scale:float x_zero_point:T y_scale:float y_zero_point:T
  out Y:T
  type T = int8 uint8
  attr channels_last INT = 0
QLinearLeakyRelu
  in X:T X_scale:float X_zero_point?:T Y_scale:float Y_zero_point?:T
  out Y:T
  type T = int8 uint8
  attr alpha FLOAT = 0.01
QLinearMul
  in A:T A_scale:float A_zero_point?:T B:T B_scale:float B_zero_point?:T C_scale:float C_zero_point?:T
  out C:T
  type T = int8 uint8
QLinearReduceMean
  in data:T data_scale:float data_zero_point?:T reduced_scale:float reduced_zero_point?:T
  out reduced:T
  type T = int8 uint8
  attr axes INTS required
  attr keepdims INT required
QLinearSigmoid
  in X:T X_scale:float X_zero_point?:T Y_scale:float Y_zero_point?:T
  out Y:T
  type T = int8 uint8
QLinearSoftmax
  in X:T X_scale:float x_zero_point?:T y_scale:float y_zero_point:T
  out Y:T
  type T = int8 uint8
  attr axis INT = -1
  attr opset INT required
QLinearWhere
  in condition:B X:T x_scale:TF x_zero_point:T Y:T y_scale:TF y_zero_point:T z_scale:TF z_zero_point:T
  out Z:T
  type B = bool
  type T = int8 uint8
  type TF = float
QMoE
  in input:T router_probs:T fc1_experts_weights:T1 fc1_scales?:T2 fc1_experts_bias?:T fc2_experts_weights:T1 fc2_scales?:T2 fc2_experts_bias?:T fc3_experts_weights?:T1 fc3_scales?:T2 fc3_experts_bias?:T fc1_zero_points?:T1 fc2_zero_points?:T1 fc3_zero_points?:T1 router_weights?:T fc1_global_scale?:T4 fc2_global_scale?:T4 fc1_act_scale?:T4 fc2_act_scale?:T4 fc1_act_block_scale?:T2 fc2_act_block_scale?:T2
  out output:T
  type T = bfloat16 float float16
  type T1 = float8e4m3fn uint8
  type T2 = bfloat16 float float16 float8e4m3fn float8e8m0
  type T4 = float
  attr accuracy_level INT = 0
  attr activation_alpha FLOAT = 1.0
  attr activation_beta FLOAT = 0.0
  attr activation_type STRING = "relu"
  attr block_size INT
  attr expert_weight_bits INT = 4
  attr fc1_expert_weight_bits INT
  attr fc2_expert_weight_bits INT
  attr fc3_expert_weight_bits INT
  attr k INT = 1
  attr normalize_routing_weights INT = 0
  attr quant_type STRING = "int"
  attr swiglu_fusion INT = 0
  attr swiglu_limit FLOAT
  attr swiglu_limit_after_activation INT = 0
  attr use_sparse_mixer INT = 0
  attr weights_prepacked INT = -1
QOrderedAttention
  in input:Q scale_input:S scale_Q_gemm:S scale_K_gemm:S scale_V_gemm:S Q_weight:Q K_weight:Q V_weight:Q scale_Q_weight:S scale_K_weight:S scale_V_weight:S Q_bias:S K_bias:S V_bias:S scale_QKT_gemm?:S scale_QKT_softmax?:S scale_values_gemm:S mask_index?:G past?:Q attention_bias?:S
  out output:Q
  type G = int32
  type Q = int8
  type S = float
  attr num_heads INT required
  attr order_input INT required
  attr order_output INT required
  attr order_weight INT required
  attr qkv_hidden_sizes INTS
  attr unidirectional INT = 0
QOrderedGelu
  in X:Q scale_X:S scale_Y:S
  out Y:Q
  type Q = int8
  type S = float
  attr order_X INT
  attr order_Y INT
QOrderedLayerNormalization
  in X:Q scale_X:S scale:F B?:F scale_Y:S
  out Y:Q
  type F = float float16
  type Q = int8
  type S = float
  attr axis INT = -1
  attr epsilon FLOAT = 1e-05
  attr order_X INT = 1
  attr order_Y INT = 1
QOrderedLongformerAttention
  in input:Q scale_input:S weight:Q scale_weight:S bias:S scale_bias:S scale_qkv_gemm:S mask:F global_weight:Q scale_global_weight:S global_bias:S scale_global_gemm:S global:G scale_output:S
  out output:Q
  type F = float16
  type G = int32
  type Q = int8
  type S = float
  attr num_heads INT required
  attr order_global_weight INT required
  attr order_input INT required
  attr order_output INT required
  attr order_weight INT required
  attr window INT required
QOrderedMatMul
  in A:Q scale_A:S B:Q scale_B:S scale_Y:S bias?:S C?:Q scale_C?:S
  out Y:Q
  type Q = int8
  type S = float
  attr order_A INT required
  attr order_B INT required
  attr order_Y INT required
QuantizeBFP
  in x:T1
  out y:T2 shape:T3 strides:T3
  type T1 = bfloat16 float float16
  type T2 = uint8
  type T3 = int64
  attr bfp_type INT required
  attr block_dim INT = -1
QuantizeLinear
  in x:T1 y_scale:T1 y_zero_point?:T2
  out y:T2
  type T1 = float float16
  type T2 = int16 int4 int8 uint16 uint4 uint8
  attr axis INT
QuantizeWithOrder
  in input:F scale_input:S
  out output:Q
  type F = float float16
  type Q = int8
  type S = float
  attr order_input INT required
  attr order_output INT required
QuickGelu
  in X:T
  out Y:T
  type T = bfloat16 double float float16
  attr alpha FLOAT = 1.702
RMSNormRotary
  in X:T scale:F position_ids:I cosine:TCos sine:TCos prefill_numerics?:TI
  out Y:TOut normalized_fp32?:F
  type F = float
  type I = int64
  type T = bfloat16 float16
  type TCos = bfloat16 float
  type TI = int32
  type TOut = bfloat16 float16
  attr epsilon FLOAT = 1e-06
  attr flatten_batch INT = 0
  attr input_start INT = 0
  attr input_width INT = 0
  attr output_fp16 INT = 0
  attr rotary_embedding_dim INT required
  attr use_fp32_arithmetic INT = 1
Range
  in start:T limit:T delta?:T
  out Y:T
  type T = double float int16 int32 int64
ReduceSumInteger
  in data:T1
  out reduced:T2
  type T1 = int8 uint8
  type T2 = int32 uint32
  attr axes INTS required
  attr keepdims INT required
RelativePositionBias
  in bias_table:T query_length:U key_length:U
  out output:T
  type T = float float16
  type U = int64
  attr is_bidirectional INT = 0
  attr max_distance INT required
RemovePadding
  in input:T sequence_token_count:M
  out output:T token_offset:M cumulated_seq_len:M max_seq_len:M
  type M = int32
  type T = float float16
RestorePadding
  in input:T token_offset:M
  out output:T
  type M = int32
  type T = float float16
Rfft
  in X:T
  out Y:T
  type T = double float float16
  attr normalized INT = 0
  attr onesided INT = 1
  attr signal_ndim INT = 1
RotaryEmbedding
  in input:T position_ids:M cos_cache:T sin_cache:T
  out output:T
  type M = int64
  type T = bfloat16 float float16
  attr interleaved INT
  attr is_packed_batching INT
  attr num_heads INT
  attr rotary_embedding_dim INT
  attr scale FLOAT
RouterGateUpProj
  in X:T W:T
  out router:T activated:T
  type T = bfloat16 float16
  attr activation STRING = "swiglu"
  attr activation_alpha FLOAT = 1.0
  attr activation_beta FLOAT = 0.0
  attr limit FLOAT = 0.0
  attr router_size INT required
SampleOp
  in X:T
  out Y:T
  type T = double float float16 int32 int64 uint32 uint64
Sampling
  in input_ids:I max_length:I min_length?:I repetition_penalty?:T vocab_mask?:I prefix_vocab_mask?:I attention_mask?:I presence_mask?:I seed?:I
  out sequences:I filtered_logits?:T
  type I = int32
  type T = float
  attr custom INT = 0
  attr decoder GRAPH required
  attr decoder_start_token_id INT = -1
  attr encoder GRAPH
  attr eos_token_id INT required
  attr filter_value FLOAT = -1e+20
  attr init_decoder GRAPH
  attr min_tokens_to_keep INT = 0
  attr model_type INT = 0
  attr no_repeat_ngram_size INT = 0
  attr pad_token_id INT required
  attr presence_penalty FLOAT = 0.0
  attr temperature FLOAT = 1.0
  attr top_p FLOAT = 0.0
  attr vocab_size INT = -1
ScaledSiLU
  in X:T scale?:M
  out Y:T
  type M = bfloat16 float float16
  type T = bfloat16 float float16
  attr alpha FLOAT = 1.0
SkipGroupNorm
  in X:T gamma:M beta:M skip:T bias?:T
  out Y:T S?:T
  type M = float float16
  type T = float float16
  attr activation INT required
  attr channels_last INT = 1
  attr epsilon FLOAT = 1e-05
  attr groups INT required
SkipLayerNormalization
  in input:T skip:T gamma:T beta?:T bias?:T
  out output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T
  type T = bfloat16 float float16
  type U = float
  attr epsilon FLOAT = 1e-12
SkipSimplifiedLayerNormalization
  in input:T skip:T gamma:T bias?:T
  out output:T mean?:U inv_std_var?:U input_skip_bias_sum?:T
  type T = bfloat16 float float16
  type U = float
  attr epsilon FLOAT = 1e-12
Snpe
  in inputs*1:T
  out outputs*1:T
  type T = float uint16 uint8
  attr DLC STRING required
  attr notes STRING
  attr snpe_version STRING
  attr target_device STRING
SparseAttention
  in query:T key?:T value?:T past_key:T past_value:T block_row_indices:M block_col_indices:M total_sequence_length:M key_total_sequence_lengths:M cos_cache?:T sin_cache?:T
  out output:T present_key:T present_value:T
  type M = int32
  type T = bfloat16 float float16
  attr do_rotary INT
  attr kv_num_heads INT required
  attr num_heads INT required
  attr rotary_interleaved INT
  attr scale FLOAT
  attr sparse_block_size INT required
SparseAttentionIndexer
  in query:T key?:T query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T mask?:TB past_key:T gate?:T position_bias?:T head_weights?:T position_ids?:I past_sequence_length?:M past_proj_buffer?:T
  out selected_indices:M present_key:T present_proj_buffer?:T
  type I = int64
  type M = int32
  type T = bfloat16 float float16
  type TB = int64
  attr compress_ratio INT required
  attr epsilon FLOAT = 1e-06
  attr head_weight_scale FLOAT
  attr index_topk INT
  attr policy_mode STRING required
  attr scale FLOAT
  attr token_budget INT
SparsePagedAttention
  in query:T key?:T value?:T key_cache:T_CACHE value_cache:T_CACHE cumulative_sequence_length:S past_seqlens:S block_table:S slot_mapping?:S selected_indices:S selected_counts:S auxiliary_key?:T auxiliary_value?:T auxiliary_lengths?:S cos_cache?:T sin_cache?:T head_sink?:T q_norm_weight?:T k_norm_weight?:T k_scale?:T_KV_SCALE v_scale?:T_KV_SCALE attention_metadata?:S
  out output:T key_cache_out?:T_CACHE value_cache_out?:T_CACHE
  type S = int32
  type T = bfloat16 float16
  type T_CACHE = bfloat16 float16 int8
  type T_KV_SCALE = float
  attr attention_mode STRING = "selected_only"
  attr auxiliary_cache_layout STRING = "contiguous"
  attr auxiliary_kv_shared INT = 0
  attr do_rotary INT = 0
  attr is_causal INT = 1
  attr k_quant_type STRING = "NONE"
  attr kv_num_heads INT required
  attr local_window_size INT = -1
  attr num_heads INT required
  attr qk_norm_epsilon FLOAT = 1e-06
  attr rotary_interleaved INT = 0
  attr rotary_offset INT = 0
  attr scale FLOAT
  attr selected_kv_source STRING = "main"
  attr softcap FLOAT
  attr v_quant_type STRING = "NONE"
SparseToDenseMatMul
  in A:T B:T1
  out Y:T1
  type T = sparse_tensor(double) sparse_tensor(float) sparse_tensor(int32) sparse_tensor(int64) sparse_tensor(uint32) sparse_tensor(uint64)
  type T1 = double float int32 int64 uint32 uint64
  attr alpha FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
SpeculativePrefixCommit
  in next_tokens:I64 input_ids:I64 status:I32 ctl:I64 ctx_commit:I64 prefixes:I64 ptrs:I64
  out head_c:I32 updated_ctl:I64 updated_ctx_commit:I64
  type I32 = int32
  type I64 = int64
  attr head_rows INT = 8
SwiGLU
  in gate:T up?:T
  out output:T
  type T = bfloat16 float float16
  attr activation_alpha FLOAT = 1.0
  attr activation_beta FLOAT = 0.0
  attr limit FLOAT = 0.0
  attr round_activation INT = 0
Tokenizer
  in X:T
  out Y:T
  type T = string
  attr mark INT required
  attr mincharnum INT required
  attr pad_value STRING required
  attr separators STRINGS
  attr tokenexp STRING
TorchEmbedding
  in weight:T indices:int64 padding_idx?:int64 scale_grad_by_freq?:bool
  out Y:T
  type T = bfloat16 double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8
TransposeMatMul
  in A:T B:T
  out Y:T
  type T = bfloat16 double float float16
  attr alpha FLOAT = 1.0
  attr transA INT = 0
  attr transB INT = 0
Trilu
  in X:T k?:int64
  out Y:T
  type T = bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8
  attr upper INT = 1
UnfoldTensor
  in input:T
  out output:T
  type T = bfloat16 bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8
  attr dim INT = -1
  attr size INT required
  attr step INT = 1
Unique
  in x:T
  out y:T idx:int64 counts:int64
  type T = bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8
VarlenCausalConvWithState
  in input:T weight:T cumulative_sequence_length:M bias?:T initial_state:T capture_count?:M kernel_delta?:T previous_mask?:T
  out output:T final_state:T state_update?:T
  type M = int32
  type T = bfloat16 float float16
  attr activation STRING = "none"
  attr delta_offset INT = 0
  attr dilation INT = 1
  attr group_size INT = 1
  attr state_update_capacity INT = 0
VarlenNGramHashMapping
  in input_ids:M multipliers:M vocab_sizes:M cumulative_sequence_length:S past_ids?:M head_offsets?:M eos_token_id?:M segment_ids?:int32 past_segment_ids?:S capture_count?:S
  out hash_ids:M present_ids?:M present_segment_ids?:S state_update?:M
  type M = int32 int64
  type S = int32
  attr max_ngram_size INT required
  attr n_head_per_ngram INT required
  attr pad_id INT required
  attr reset_on_eos INT = 0
  attr state_update_capacity INT = 0
WhisperBeamSearch
  in input_ids:F max_length:I min_length?:I num_beams:I num_return_sequences:I length_penalty?:T repetition_penalty?:T vocab_mask?:M prefix_vocab_mask?:M attention_mask?:I decoder_input_ids?:I logits_processor?:I cross_qk_layer_head?:I extra_decoding_ids?:I temperature?:T
  out sequences:I sequences_scores?:T scores?:T cross_qk?:V non_speech_probs?:T
  type F = float float16 int32
  type I = int32
  type M = int32
  type T = float float16
  type V = float
  attr beginning_timestamp_token_id INT
  attr decoder GRAPH required
  attr decoder_output_cross_qk INT
  attr decoder_start_token_id INT = -1
  attr early_stopping INT = 0
  attr encoder GRAPH
  attr eos_token_id INT required
  attr init_decoder GRAPH
  attr model_type INT = 2
  attr no_repeat_ngram_size INT = 0
  attr no_speech_token_id INT
  attr no_timestamps_token_id INT
  attr pad_token_id INT required
  attr start_of_lm_token_id INT
  attr transcribe_token_id INT
  attr translate_token_id INT
  attr vocab_size INT = -1
WordConvEmbedding
  in Sequence:T W:T1 B:T1 C:T1
  out Y:T1
  type T = int32
  type T1 = float
  attr char_embedding_size INT
  attr conv_window_size INT
  attr embedding_size INT
"""
